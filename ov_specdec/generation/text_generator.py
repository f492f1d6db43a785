"""`TextGenerator`: encodes a prompt, makes its sequence, and has the engine run it."""

from collections.abc import Hashable, Set
from collections.abc import Sequence as Many
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import inf
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from ov_specdec.cache.slot import EncoderInput
from ov_specdec.drafters.suffix_index import SuffixIndex
from ov_specdec.engine.answers import Answers
from ov_specdec.engine.loop import EngineLoop
from ov_specdec.engine.output import Reader
from ov_specdec.engine.sequence import Sequence
from ov_specdec.errors import OptionError
from ov_specdec.generation.sequence_factory import SequenceFactory, namespace_of
from ov_specdec.models.compile import LoadedModel
from ov_specdec.options.conflicts import constraints_of
from ov_specdec.options.generation import GenerationOptions
from ov_specdec.results.chunks import Chunk, ChunkStream, GenerationResult, collect
from ov_specdec.sampling.grammar import Grammar
from ov_specdec.text.answer_format import TEXT_ONLY, AnswerFormat
from ov_specdec.text.answer_parser import AnswerParser
from ov_specdec.text.detokenizer import IncrementalDetokenizer, as_text
from ov_specdec.text.format_probe import read_format
from ov_specdec.text.grammar import Grammars
from ov_specdec.text.prompt import Prompt, PromptEncoder, TextToText, escaped_copy, may_fit
from ov_specdec.text.tokenizer import Tokenizer

PROMPT_END = 32
"""Tokens at the end of a prompt that show whether it has begun the reasoning."""


class GenerationStream(ChunkStream[Chunk]):
    """The chunks of one generation: an iterator that any thread may cancel.

    The last chunk has a finish reason and the statistics.
    """


class TextGenerator:
    """A main model with a drafter, from prompts to chunks of text.

    sequences: makes those of the models. loop: runs all together. answers: read again between
    requests. vocab_size: ids below it have a token. models: those that were loaded, the main
    model's first. text_to_text, parsers: see `PromptEncoder` and `AnswerTexts`.
    """

    def __init__(
        self,
        sequences: SequenceFactory,
        loop: EngineLoop,
        answers: Answers,
        tokenizer: Tokenizer,
        vocab_size: int,
        models: Many[LoadedModel] = (),
        text_to_text: TextToText | None = None,
        parsers: tuple[str, str] = ("auto", "auto"),
    ) -> None:
        self.sequences, self.loop, self.answers, self.models = sequences, loop, answers, models
        room = sequences.main.max_length, sequences.main.capacity
        self.prompts = PromptEncoder(tokenizer, vocab_size, *room, text_to_text)
        self.texts = AnswerTexts(tokenizer, vocab_size, sequences.eos_token_ids, parsers)
        self.last_cached: tuple[Many[int], str | None] = ((), None)
        """Tokens and salt of the last finished generation with `cache_prompt`."""
        self._references = WeakValueDictionary[Any, SuffixIndex]()
        """The reference texts of unfinished generations."""

    def close(self) -> None:
        """End all generations within one pass, and what works for them."""
        self.loop.close()
        self.texts.grammars.close()
        for shapes in self.loop.engine.shapes.values():
            shapes.close()
        self.sequences.learned.costs.keep()
        if self.sequences.invariance is not None:
            self.sequences.invariance.close()

    def stream(self, prompt: Prompt, options: GenerationOptions) -> GenerationStream:
        """Check prompt and options; the chunks then come as the stream is read."""
        return self._read(self.begin(self.prompts.encode(prompt, options), options))

    def batch(self, prompts: Many[tuple[Prompt, GenerationOptions]]) -> list[GenerationResult]:
        """Check all prompts and options, then generate together; results in the same order."""
        sequences = [self.begin(self.prompts.encode(*each), each[1]) for each in prompts]
        for sequence in sequences:
            self.loop.add(sequence)
        results = list[GenerationResult]()
        try:
            for sequence in sequences:
                results.append(collect(self.loop.read(sequence)))
                self.sequences.earlier.take_in()  # unfinished ones then search its output
            return results
        finally:
            for sequence in sequences:
                self.loop.cancel(sequence)

    def begin(
        self,
        ids: list[int],
        options: GenerationOptions,
        reader: Reader | None = None,
        tenant: Hashable = None,
        until: float = inf,
    ) -> Sequence:
        """Check the options of a generation, which starts when it is added to `loop`.

        ids: of its prompt, from `PromptEncoder.encode`. reader: gets the chunks; None leaves them
        to `loop.read`. tenant: see `SequenceFactory.make`. until: see `Grammars.compile`.
        """
        tokens, source, start = ids, None, self.prompts.text_to_text
        if start is not None:
            options = start.complete(options, self.prompts.tokenizer)
            tokens = [start.decoder_start_token_id]
            source = EncoderInput(np.array([ids]), namespace_of(options))
        text, grammar = self.texts.open(ids, tokens, options, until)
        repeats = options.reference_texts or options.tools
        references = self._references_of(ids, options) if repeats else None
        given = tokens, options, text, references, source, grammar
        return self.sequences.make(*given, reader, tenant, self._remember)

    def stream_window(
        self, encoder_input: EncoderInput, prompt: list[int], options: GenerationOptions
    ) -> GenerationStream:
        """Decode the features of a recording, to chunks without text.

        prompt: ids of the decoder. Reference texts may be longer than the context.
        """
        encode = self.prompts.tokenizer.encode_rendered
        texts = [encode(text).ids for text in options.reference_texts]
        references = SuffixIndex(texts) if texts else None
        text = IncrementalDetokenizer(lambda *_: b"", [])
        return self._read(self.sequences.make(prompt, options, text, references, encoder_input))

    def _references_of(self, ids: list[int], options: GenerationOptions) -> SuffixIndex | None:
        """The index of the reference texts, which all choices of a request share.

        It has the prompt `ids` too, as calls in JSON repeat them.
        """
        texts, context = tuple(options.reference_texts), self.prompts.context
        repeats = self.sequences.drafter.searches_earlier and self.texts.has_json_calls(options)
        tokenizer = self.prompts.tokenizer
        copy = escaped_copy(ids, tokenizer) if repeats else []
        if not texts and not copy:
            return None
        key = (options.cache_salt, texts, tuple(copy))
        if (known := self._references.get(key)) is not None:
            return known
        may_all_fit = all(may_fit(text, tokenizer, context) for text in texts)
        encoded = [tokenizer.encode_rendered(text).ids for text in texts if may_all_fit]
        if not may_all_fit or sum(map(len, encoded)) > context:
            raise OptionError(
                f"{{reference_texts}} have more tokens than the model's context, {context}: "
                "shorten them",
                reference_texts=texts,
            )
        self._references[key] = index = SuffixIndex(filter(None, [*encoded, copy]))
        return index

    def _read(self, sequence: Sequence) -> GenerationStream:
        return GenerationStream(self.loop.read(sequence), partial(self.loop.cancel, sequence))

    def _remember(self, sequence: Sequence) -> None:
        """Keep the output of a generation for later turns."""
        request, tokens = sequence.request, sequence.tokens
        options, prompt = request.options, request.prompt
        if not options.cache_prompt:
            return
        salt, given = options.cache_salt, sequence.output.given
        self.last_cached = tokens, salt
        if sequence.finish_reason is not None:
            self.answers.add(tokens, salt)
        # With special tokens in its text, the template would repeat some.
        if salt is not None and options.skip_special_tokens:
            ids, message = given.token_ids, None
            is_parsed = any(chunk.parts for chunk in given.chunks)
            if is_parsed and given.finish_reason and ids[-1] in request.sampler.ends:
                message = given.result.message
            answer = None if is_parsed else given.text, ids, self.prompts.tokenizer.piece_after
            known = self.prompts.generated_tokens
            known.remember(*answer, prompt=prompt, salt=salt, message=message)
        if self.sequences.drafter.searches_earlier:
            self.sequences.earlier.remember(salt, tokens, len(prompt))


@dataclass
class AnswerTexts:
    """The texts of a model's answers. vocab_size: ids below it have a token.

    eos_token_ids: its end-of-sequence tokens. parsers: of calls and of reasoning, as the options of
    the pipeline name them.
    """

    tokenizer: Tokenizer
    vocab_size: int
    eos_token_ids: frozenset[int]
    parsers: tuple[str, str] = ("auto", "auto")

    @cached_property
    def grammars(self) -> Grammars:
        """What compiles the grammars of structured output."""
        file = self.tokenizer.path / "tokenizer.json"
        return Grammars(file, self.vocab_size, sorted(self.eos_token_ids))

    @cached_property
    def format(self) -> AnswerFormat:
        """How answers mark calls and reasoning, as far as the chat template shows it."""
        return read_format(self.tokenizer, *self.parsers)

    def _check_tools(self, options: GenerationOptions) -> None:
        """Refuse tools that the chat template does not show how to call."""
        if self.format.calls is None:
            if reason := self.format.reason:
                raise OptionError(
                    f"{{tools}} cannot be used with this model ({reason}): leave it out, or give "
                    "{tool_call_parser}",
                    tools=...,
                    tool_call_parser="none",
                )
            if options.tool_choice != "auto":
                raise OptionError(
                    "{tool_choice} contradicts {tool_call_parser}: leave it out",
                    tool_choice=...,
                    tool_call_parser="none",
                )

    def format_of(self, options: GenerationOptions) -> AnswerFormat:
        """The format of an answer with these options; without a chat template it marks nothing."""
        has_template = options.apply_chat_template and self.tokenizer.chat_template is not None
        return self.format if has_template else TEXT_ONLY

    def has_json_calls(self, options: GenerationOptions) -> bool:
        """Whether an answer with these options may call tools with arguments in JSON."""
        calls = self.format_of(options).calls if options.may_call else None
        return calls is not None and calls.parameters is None

    def open(
        self, ids: Many[int], tokens: Many[int], options: GenerationOptions, until: float
    ) -> tuple[IncrementalDetokenizer, Grammar | None]:
        """What turns an answer into text, and the grammar that it fits, if any.

        ids: of the prompt. tokens: those before the answer. until: see `Grammars.compile`.
        """
        if options.tools:
            self._check_tools(options)
        form, ends = self.format_of(options), options.ending_ids(self.eos_token_ids)
        constraints = constraints_of(options)
        end = self.tokenizer.decode_all(ids[-PROMPT_END:]) if form.reasoning else ""
        is_reasoning = form.reasoning is not None and form.reasoning.is_open(end)
        has_calls = form.calls is not None and not options.may_call
        read = replace(form, calls=None) if has_calls else form
        parts = read.calls or read.reasoning
        text = IncrementalDetokenizer(
            self.tokenizer.piece_after,
            tokens,
            options.stop_strings,
            options.include_stop_str_in_output,
            self._hidden(options, read, ends, has_constraint=bool(constraints)),
            options.min_tokens,
            AnswerParser(read, options.tools, is_reasoning) if parts else None,
        )
        calls = options.tools and form.calls
        if not (constraints or calls or options.thinking_token_budget is not None):
            return text, None
        make = self.grammars.compile(options, ends, form, is_reasoning, until)
        has_forced = options.forced_bos_token_id is not None and len(tokens) == 1
        return text, make(len(tokens), int(has_forced))

    def _hidden(
        self, options: GenerationOptions, form: AnswerFormat, ends: Set[int], has_constraint: bool
    ) -> dict[int, str]:
        """The tokens that the text leaves out, with their names, but not the markers of parts."""
        skips = options.skip_special_tokens
        special = self.tokenizer.special_tokens if skips else {}
        markers = {*form.tokens.values()} - ends
        hidden = {**special}
        for marker in markers:
            hidden.pop(marker, None)
        if not options.include_stop_str_in_output:
            ending = options.stop_token_ids if skips and not has_constraint else ends
            for token in ending:
                hidden[token] = as_text(self.tokenizer.piece(token))
        return hidden
