"""Turns a prompt with options into a sequence, and its tokens into a stream of text."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from math import inf
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from ov_specdec.cache.slot import EncoderInput
from ov_specdec.drafters.earlier_outputs import EarlierOutputs
from ov_specdec.drafters.factory import DrafterInput, DrafterKind
from ov_specdec.drafters.suffix_index import SuffixIndex
from ov_specdec.engine.answers import Answers
from ov_specdec.engine.loop import EngineLoop
from ov_specdec.engine.output import Output, Reader
from ov_specdec.engine.sequence import Request
from ov_specdec.engine.sequence import Sequence as EngineSequence
from ov_specdec.errors import CacheFullError, Option, OptionError
from ov_specdec.models.compile import LoadedModel
from ov_specdec.models.invariance import Invariance
from ov_specdec.options.generation import GenerationOptions
from ov_specdec.options.structured import constraints_of
from ov_specdec.planning.policies import ConstantLength, LearnedStats, make_policy
from ov_specdec.results.chunks import Chunk, ChunkStream, GenerationResult, Parse, collect
from ov_specdec.results.stats import NOT_INVARIANT, GenerationStats, LengthLimit
from ov_specdec.runner.base import HiddenStatesReader, Runner
from ov_specdec.runner.cached_sequence import CachedSequence
from ov_specdec.sampling.from_options import make_samplers
from ov_specdec.sampling.grammar import Grammar
from ov_specdec.text.answer_format import TEXT_ONLY, AnswerFormat
from ov_specdec.text.answer_parser import AnswerParser
from ov_specdec.text.detokenizer import IncrementalDetokenizer, as_text
from ov_specdec.text.generated_tokens import GeneratedTokens
from ov_specdec.text.grammar import Grammars, parser_of
from ov_specdec.text.pairing import TokenizerPair
from ov_specdec.text.prompt import (
    Prompt,
    TextToText,
    encode_prompt,
    escaped_copy,
    may_fit,
    overflow,
)
from ov_specdec.text.template_format import read_format
from ov_specdec.text.tokenizer import Tokenizer

PROMPT_END = 32
"""Tokens at the end of a prompt that show whether it has begun the reasoning."""


class GenerationStream(ChunkStream[Chunk]):
    """The chunks of one generation: an iterator that any thread may cancel.

    The last chunk has a finish reason and the statistics.
    """


@dataclass
class TextGenerator:
    """A main model, its tokenizer, and a drafter for it.

    loop: runs all generations together. vocab_size: ids below it have a token. eos_token_ids:
    default end-of-sequence tokens. draft, pairing: the draft model, if any, and how it drafts with
    another tokenizer. learned: cost curves and acceptance from earlier generations. earlier: their
    outputs. generated_tokens: the answers to prompts with a salt. text_to_text: how the decoder of
    an encoder-decoder model starts. models: those that were loaded, the main model first.
    invariance: the batch invariance of the main model. answers: read again between requests.
    parsers: of calls and of reasoning, as the options of the pipeline name them.
    """

    main: Runner
    loop: EngineLoop
    tokenizer: Tokenizer
    vocab_size: int
    eos_token_ids: frozenset[int]
    drafter: DrafterKind
    draft: Runner | None = None
    pairing: TokenizerPair | None = None
    learned: LearnedStats = field(default_factory=LearnedStats)
    earlier: EarlierOutputs = field(default_factory=EarlierOutputs)
    generated_tokens: GeneratedTokens = field(default_factory=GeneratedTokens)
    last_cached: tuple[Sequence[int], str | None] = ((), None)
    """Tokens and salt of the last finished generation with `cache_prompt`."""
    text_to_text: TextToText | None = None
    models: Sequence[LoadedModel] = ()
    invariance: Invariance | None = None
    answers: Answers | None = None
    parsers: tuple[str, str] = ("auto", "auto")
    _shared: WeakValueDictionary[Any, SuffixIndex] = field(default_factory=WeakValueDictionary)
    """The reference texts of unfinished generations."""

    @cached_property
    def grammars(self) -> Grammars:
        """What compiles the grammars of structured output."""
        file = self.tokenizer.path / "tokenizer.json"
        return Grammars(file, self.vocab_size, sorted(self.eos_token_ids))

    @cached_property
    def answer_format(self) -> AnswerFormat:
        """How answers mark calls and reasoning, as far as the chat template shows it."""
        return read_format(self.tokenizer, *self.parsers)

    def close(self) -> None:
        """End all generations within one pass, and what works for them."""
        self.loop.close()
        self.grammars.close()
        for shapes in self.loop.engine.shapes.values():
            shapes.close()
        if self.invariance is not None:
            self.invariance.close()

    def stream(self, prompt: Prompt, options: GenerationOptions) -> GenerationStream:
        """Check prompt and options; the chunks then come as the stream is read."""
        return self._read(self.begin(self.encode(prompt, options), options))

    def begin(
        self,
        ids: Sequence[int],
        options: GenerationOptions,
        reader: Reader | None = None,
        tenant: Hashable = None,
        until: float = inf,
    ) -> EngineSequence:
        """Check the options of a generation, which starts when it is added to `loop`.

        ids: of its prompt, from `encode`. reader: gets the chunks; None leaves them to `loop.read`.
        tenant: whose it is; None: its `cache_salt` tells. until: see `Grammars.compile`.
        """
        tokens, source = list(ids), None
        if self.text_to_text is not None:
            options = self.text_to_text.complete(options, self.tokenizer)
            tokens = [self.text_to_text.decoder_start_token_id]
            source = EncoderInput(np.array([ids]), _namespace(options))
        self.check(options)
        has_template = options.apply_chat_template and self.tokenizer.chat_template is not None
        form = self.answer_format if has_template else TEXT_ONLY
        end = self.tokenizer.decode_all(ids[-PROMPT_END:]) if form.reasoning else ""
        is_reasoning = form.reasoning is not None and form.reasoning.is_open(end)
        read = form if options.may_call else replace(form, calls=None)
        parts = read.calls or read.reasoning
        text = IncrementalDetokenizer(
            self.tokenizer.piece_after,
            tokens,
            options.stop_strings,
            options.include_stop_str_in_output,
            self._hidden(options, read),
            options.min_tokens,
            AnswerParser(read, options.tools, is_reasoning) if parts else None,
        )
        grammar, calls = None, options.tools and form.calls
        if constraints_of(options) or calls or options.thinking_token_budget is not None:
            eos = options.ending_ids(self.eos_token_ids)
            make = self.grammars.compile(options, eos, form, is_reasoning, until)
            has_forced = options.forced_bos_token_id is not None and len(tokens) == 1
            grammar = make(len(tokens), int(has_forced))
        references = self._references(ids, options, form)
        given = tokens, options, text, references, source, grammar
        return self._sequence(*given, reader, tenant, self._remember)

    def batch(self, prompts: Sequence[tuple[Prompt, GenerationOptions]]) -> list[GenerationResult]:
        """Check all prompts and options, then generate together; results in the same order."""
        sequences = [self.begin(self.encode(*each), each[1]) for each in prompts]
        for sequence in sequences:
            self.loop.add(sequence)
        results = list[GenerationResult]()
        try:
            for sequence in sequences:
                results.append(collect(self.loop.read(sequence)))
                self.earlier.take_in()  # unfinished ones then search its output
            return results
        finally:
            for sequence in sequences:
                self.loop.cancel(sequence)

    def stream_window(
        self, encoder_input: EncoderInput, prompt: Sequence[int], options: GenerationOptions
    ) -> GenerationStream:
        """Decode the features of a recording, to chunks without text.

        prompt: ids of the decoder. Reference texts may be longer than the context.
        """
        texts = [self.tokenizer.encode_rendered(text).ids for text in options.reference_texts]
        references = SuffixIndex(texts) if texts else None
        text = IncrementalDetokenizer(lambda *_: b"", [])
        return self._read(self._sequence(list(prompt), options, text, references, encoder_input))

    def check(self, options: GenerationOptions) -> None:
        """Refuse options that the vocabulary or the drafter does not support."""
        for name, ids in options.token_ids().items():
            if ids:
                _require_ids("{option}", ids, self.vocab_size, option=Option(name))
        self.drafter.check(options)
        if options.tools and self.answer_format.calls is None:
            if reason := self.answer_format.reason:
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

    def _sequence(
        self,
        tokens: list[int],
        options: GenerationOptions,
        text: IncrementalDetokenizer,
        references: SuffixIndex | None,
        source: EncoderInput | None,
        grammar: Grammar | None = None,
        reader: Reader | None = None,
        tenant: Hashable = None,
        remember: Callable[[EngineSequence], None] = lambda _: None,
    ) -> EngineSequence:
        """A sequence with its prompt and empty caches, and its drafter, which reads the prompt."""
        prompt = (source.ids if source else []) or tokens
        sampler, draft_sampler = make_samplers(
            options,
            prompt_length=len(tokens),
            eos_token_ids=options.ending_ids(self.eos_token_ids),
            prompt_ids=prompt,
            grammar=grammar,
        )
        namespace = source.namespace if source else _namespace(options)
        given = DrafterInput(
            main=self.main,
            draft=self.draft,
            options=options,
            tokens=tokens,
            draft_sampler=draft_sampler,
            namespace=namespace,
            references=references,
            earlier=self.earlier,
            pairing=self.pairing,
            encoder_input=source,
        )
        drafters = self.drafter.make(given)
        readers = [drafter for drafter in drafters if isinstance(drafter, HiddenStatesReader)]
        length, limit = self._length_limit(len(tokens), options.max_new_tokens)
        rooms = [each.max_sequences for each in (self.main, self.draft) if each is not None]
        stats = GenerationStats(
            len(prompt),
            batch_invariant=self.invariance.status if self.invariance else NOT_INVARIANT,
            max_sequences=min((n for n in rooms if n is not None), default=None),
            length_limit=limit,
        )
        kept_tokens = self.models[-1].config.kept_tokens if self.models else None

        def parser() -> Parse | None:
            is_value = grammar and constraints_of(options) and grammar.accepts()
            return parser_of(options) if is_value else None

        request = Request(
            tokens,
            length,
            sampler,
            drafters,
            make_policy(options, self.learned, self.main) if drafters else ConstantLength(0),
            options,
            grammar,
            options.cache_salt if tenant is None else tenant,
        )
        cache = CachedSequence(self.main, source or namespace, readers, len(tokens))
        output = Output(text, stats, kept_tokens, parser, reader)
        return EngineSequence(request, cache, output, remember)

    def _length_limit(self, num_tokens: int, max_new_tokens: int | None) -> tuple[int, LengthLimit]:
        """The maximum length of a sequence of `num_tokens`, and the limit that sets it."""
        limits: dict[LengthLimit, float] = {  # the first of equal ones counts
            "max_new_tokens": inf if max_new_tokens is None else num_tokens + max_new_tokens,
            "max_model_len": self.main.max_length,
            "kv_cache_size": inf if self.main.capacity is None else self.main.capacity,
        }
        name = min(limits, key=limits.__getitem__)
        return int(limits[name]), name

    def _read(self, sequence: EngineSequence) -> GenerationStream:
        return GenerationStream(self.loop.read(sequence), partial(self.loop.cancel, sequence))

    def _remember(self, sequence: EngineSequence) -> None:
        """Keep the output of a generation for later turns."""
        request, tokens = sequence.request, sequence.tokens
        options, start = request.options, len(request.prompt)
        if not options.cache_prompt:
            return
        salt, given = options.cache_salt, sequence.output.given
        self.last_cached = tokens, salt
        if self.answers is not None and sequence.finish_reason is not None:
            self.answers.add(tokens, salt)
        # With special tokens in its text, the template would repeat some.
        if salt is not None and options.skip_special_tokens:
            ids, message = given.token_ids, None
            is_parsed = any(chunk.parts for chunk in given.chunks)
            if is_parsed and given.finish_reason and ids[-1] in request.sampler.ends:
                message = given.result.message
            answer = None if is_parsed else given.text, ids, self.tokenizer.piece_after
            prompt = tokens[:start]
            self.generated_tokens.remember(*answer, prompt=prompt, salt=salt, message=message)
        if self.drafter.searches_earlier:
            self.earlier.remember(salt, tokens, start)

    def _hidden(self, options: GenerationOptions, form: AnswerFormat) -> dict[int, str]:
        """The tokens that the text leaves out, with their names, but not the markers of parts."""
        skips, ends = options.skip_special_tokens, options.ending_ids(self.eos_token_ids)
        special = self.tokenizer.special_tokens if skips else {}
        markers = {*form.tokens.values()} - ends
        hidden = {token: name for token, name in special.items() if token not in markers}
        if not options.include_stop_str_in_output:
            is_free = skips and not constraints_of(options)
            ending = options.stop_token_ids if is_free else ends
            hidden.update((token, as_text(self.tokenizer.piece(token))) for token in ending)
        return hidden

    def encode(self, prompt: Prompt, options: GenerationOptions) -> list[int]:
        """The prompt's ids; `OptionError` if it is empty, too long or invalid."""
        is_text_to_text = self.text_to_text is not None
        for name in () if is_text_to_text else ("src_lang", "tgt_lang"):
            if (language := getattr(options, name)) is not None:
                raise OptionError(
                    "{option} needs an encoder-decoder model: leave it out",
                    option=Option(name, language),
                )
        ids = encode_prompt(
            prompt, options, self.tokenizer, self.generated_tokens, self.main.max_length
        )
        if not ids:
            raise OptionError("the prompt is empty: give at least one token of text")
        # An output needs room, except beside a prompt that is the input of an encoder.
        context = self.main.max_length
        if len(ids) > context or (len(ids) == context and not is_text_to_text):
            raise overflow(f"{len(ids)} tokens", context)
        if not is_text_to_text:
            self._check_capacity(len(ids), options.max_new_tokens)
        _require_ids("the prompt", ids, self.vocab_size)
        return ids

    def _check_capacity(self, num_tokens: int, max_new_tokens: int | None) -> None:
        """Refuse a prompt that has no room in the KV cache with its output."""
        if (capacity := self.main.capacity) is None:
            return
        num_new = 1 if max_new_tokens is None else max_new_tokens
        needed = min(num_tokens + num_new, self.main.max_length)
        if needed > capacity:
            raise CacheFullError(
                f"prompt and {{max_new_tokens}} need {needed} tokens of KV cache, "
                f"{{kv_cache_size}} has room for {capacity}: raise it, or lower {{max_new_tokens}}",
                max_new_tokens=...,
                kv_cache_size=...,
            )

    def _references(
        self, ids: Sequence[int], options: GenerationOptions, form: AnswerFormat
    ) -> SuffixIndex | None:
        """The index of the reference texts, which all choices of a request share.

        Where calls are JSON it also has the prompt as they repeat it.
        """
        texts, copy = tuple(options.reference_texts), list[int]()
        is_json = form.calls is not None and form.calls.parameters is None
        if options.may_call and is_json and self.drafter.searches_earlier:
            copy = escaped_copy(ids, self.tokenizer)
        if not texts and not copy:
            return None
        key = (options.cache_salt, texts, tuple(copy))
        if (known := self._shared.get(key)) is not None:
            return known
        context = self.main.max_length
        may_all_fit = all(may_fit(text, self.tokenizer, context) for text in texts)
        encoded = [self.tokenizer.encode_rendered(text).ids for text in texts if may_all_fit]
        if not may_all_fit or sum(map(len, encoded)) > context:
            raise OptionError(
                f"{{reference_texts}} have more tokens than the model's context, {context}: "
                "shorten them",
                reference_texts=texts,
            )
        self._shared[key] = index = SuffixIndex(filter(None, [*encoded, copy]))
        return index


def _namespace(options: GenerationOptions) -> Hashable:
    """Of the KV cache; without `cache_prompt` a new one, which shares nothing."""
    return options.cache_salt if options.cache_prompt else object()


def _require_ids(where: str, ids: Iterable[int], vocab_size: int, **options: object) -> None:
    """Refuse token ids that a model does not have."""
    for token in ids:
        if not 0 <= token < vocab_size:
            raise OptionError(
                f"{where} holds token id {token}: the model has 0 to {vocab_size - 1}", **options
            )
