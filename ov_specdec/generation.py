"""Turns a prompt with options into a sequence, and its tokens into a stream of text."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from ov_specdec.checks import require_ids
from ov_specdec.chunk_stream import ChunkStream
from ov_specdec.chunks import Chunk, GenerationResult, Given, Output, collect
from ov_specdec.description import as_tuple
from ov_specdec.drafters.factory import DrafterFactory
from ov_specdec.drafters.references import References
from ov_specdec.engine import MAX_UNREAD, Cancelled, EngineLoop, Round
from ov_specdec.engine import Sequence as EngineSequence
from ov_specdec.engine.from_options import make_sequence
from ov_specdec.errors import CacheFullError, ContextLengthError, Option, OptionError
from ov_specdec.invariance import Invariance
from ov_specdec.options import GenerationOptions
from ov_specdec.planning.schedule import LearnedStats
from ov_specdec.runner.base import Runner
from ov_specdec.runner.source import Source
from ov_specdec.sampling.from_options import make_samplers
from ov_specdec.stats import LengthLimit
from ov_specdec.text.characters import Decode
from ov_specdec.text.detokenizer import IncrementalDetokenizer
from ov_specdec.text.generated_tokens import GeneratedTokens
from ov_specdec.text.prompt import Prompt, encode_prompt, require_room
from ov_specdec.text.text_to_text import TextToText
from ov_specdec.text.tokenizer import Tokenizer


class GenerationStream(ChunkStream[Chunk]):
    """The chunks of one generation: an iterator that any thread may cancel.

    The last chunk has a finish reason and the statistics.
    """


@dataclass
class TextGenerator:
    """A main model, its tokenizer, and the drafters for it.

    loop: runs all generations together. vocab_size: ids below it have a token. eos_token_ids:
    default end-of-sequence tokens. learned: cost curves and acceptance from earlier generations.
    generated_tokens: their answers, which later prompts may contain. text_to_text: how the decoder
    of an encoder-decoder model starts. invariance: the batch invariance of the main model.
    """

    main: Runner
    loop: EngineLoop
    tokenizer: Tokenizer
    vocab_size: int
    eos_token_ids: frozenset[int]
    drafters: DrafterFactory
    learned: LearnedStats = field(default_factory=LearnedStats)
    generated_tokens: GeneratedTokens = field(default_factory=GeneratedTokens)
    last_kept: "Kept" = field(default_factory=lambda: Kept([]))
    """The last finished generation with `cache_prompt`."""
    text_to_text: TextToText | None = None
    invariance: Invariance | None = None
    _shared: WeakValueDictionary[Any, References] = field(default_factory=WeakValueDictionary)
    """The reference texts of unfinished generations."""

    @property
    def _max_sequences(self) -> int | None:
        """Maximum concurrent sequences in the KV caches of both models; None: any number."""
        draft = self.drafters.draft
        runners = [self.main] if draft is None else [self.main, draft.runner]
        return min((m.max_sequences for m in runners if m.max_sequences is not None), default=None)

    def stream(self, prompt: Prompt, options: GenerationOptions) -> GenerationStream:
        """Check prompt and options; the chunks then come as the stream is read."""
        generation = self._begin(self.encode(prompt, options), options, MAX_UNREAD)
        cancel = partial(self.loop.cancel, generation.sequence)
        return GenerationStream(self._chunks(generation), cancel)

    def begin(
        self,
        ids: Sequence[int],
        options: GenerationOptions,
        receive: Callable[[Sequence[Chunk]], None],
        on_end: Callable[[BaseException | None], None],
    ) -> "Generation":
        """Check the options of a generation whose chunks go to a callback.

        ids: of its prompt, from `encode`. receive, on_end: called in the thread that runs steps,
        and must not block. It starts when its sequence is added to `loop`.
        """
        generation = self._begin(ids, options, None)
        output, given = generation.output, Given()

        def publish(sequence: EngineSequence, round_: Round) -> Sequence[Chunk]:
            new = output.add(sequence, round_)
            for chunk in new:
                given.add(chunk)
            receive(new)
            return ()

        def end(error: BaseException | None) -> None:
            try:
                self._remember(generation, given)
            except Exception as failure:  # the reader must get the error
                error = error or failure
            on_end(error)

        generation.sequence.publish, generation.sequence.on_end = publish, end
        return generation

    def batch(self, prompts: Sequence[tuple[Prompt, GenerationOptions]]) -> list[GenerationResult]:
        """Check all prompts and options, then generate together; results in the same order."""
        generations = [
            self._begin(self.encode(prompt, options), options, None) for prompt, options in prompts
        ]
        for generation in generations:
            self.loop.add(generation.sequence)
        try:
            return [self._collect(generation) for generation in generations]
        finally:
            for generation in generations:
                self.loop.cancel(generation.sequence)

    def _begin(
        self, ids: Sequence[int], options: GenerationOptions, max_unread: int | None
    ) -> "Generation":
        tokens = ids
        if self.text_to_text is not None:
            options = self.text_to_text.complete(options, self.tokenizer)
            tokens = [self.text_to_text.decoder_start_token_id]
        for name, named in options.token_ids().items():
            require_ids(Option(name), named, self.vocab_size)
        eos = options.ending_ids(self.eos_token_ids)
        length, set_by = self._length_limit(len(tokens), options.max_new_tokens)
        samplers = make_samplers(
            options, prompt_length=len(tokens), eos_token_ids=eos, prompt_ids=ids
        )
        self.drafters.check(options)
        # A separate namespace: it shares nothing.
        namespace = options.cache_salt if options.cache_prompt else object()
        sequence = make_sequence(
            self.main,
            self.drafters,
            self.learned,
            options,
            samplers,
            list(tokens),
            length,
            eos,
            namespace,
            self._references(options),
            Source(np.array([ids]), namespace) if self.text_to_text else None,
        )
        text = IncrementalDetokenizer(
            self._decode(options, eos), tokens, options.stops, options.include_stop_str_in_output
        )
        output = Output(text, len(ids))
        output.stats.max_sequences = self._max_sequences
        output.stats.length_limit = set_by
        if self.invariance is not None:
            output.stats.batch_invariant = self.invariance.status
        sequence.publish, sequence.max_unread = output.add, max_unread
        return Generation(sequence, options, output, len(tokens))

    def _chunks(self, generation: "Generation") -> Generator[Chunk, None, None]:
        """Its chunks; however it ends, the output so far is kept for later turns."""
        given = Given()
        try:
            for chunk in self.loop.read(generation.sequence):
                given.add(chunk)
                yield chunk
        except Cancelled:
            last = generation.output.cancelled()
            given.add(last)
            yield last
        finally:
            self._remember(generation, given)

    def _collect(self, generation: "Generation") -> GenerationResult:
        """Read to the end; unfinished generations of the batch then search its output."""
        result = collect(self._chunks(generation))
        self.drafters.earlier.take_in()
        return result

    def _remember(self, generation: "Generation", given: Given) -> None:
        """Keep the output of a generation."""
        if generation.options.cache_prompt:
            salt, start = generation.options.cache_salt, generation.num_prompt_tokens
            tokens = generation.sequence.tokens
            self.last_kept = Kept(tokens, salt)
            if generation.options.skip_special_tokens:  # otherwise the template would repeat some
                text = "".join(given.texts)
                self.generated_tokens.remember(
                    text, given.token_ids, prompt=tokens[:start], salt=salt
                )
            self.drafters.remember(salt, tokens, start)

    def _decode(self, options: GenerationOptions, eos_token_ids: frozenset[int]) -> Decode:
        """A function from the ids of an output to its text, without the token that ends it."""
        skips = options.skip_special_tokens
        decode = self.tokenizer.decode if skips else self.tokenizer.decode_all
        hidden = frozenset(as_tuple(options.stop_token_ids)) if skips else eos_token_ids
        if options.include_stop_str_in_output or not hidden:
            return decode
        return lambda ids: decode([token for token in ids if token not in hidden])

    def encode(self, prompt: Prompt, options: GenerationOptions) -> list[int]:
        """The prompt's ids; `OptionError` if it is empty, too long or invalid."""
        if self.text_to_text is None:
            _require_no_languages(options)
        ids = encode_prompt(
            prompt,
            options,
            self.tokenizer,
            self.generated_tokens,
            self.main.max_length,
            self._check_length,
        )
        if not ids:
            raise OptionError("the prompt is empty: give at least one token of text")
        self._check_length(len(ids))
        if self.text_to_text is None:
            self._check_capacity(len(ids), options.max_new_tokens)
        require_ids("the prompt", ids, self.vocab_size)
        return ids

    def _check_length(self, num_tokens: int) -> None:
        """Refuse a prompt that is too long for the model's context or encoder."""
        context = self.main.max_length
        if self.text_to_text is not None and num_tokens > context:
            raise ContextLengthError(
                f"the prompt has {num_tokens} tokens, and the model's encoder takes up to "
                f"{context}: shorten the prompt"
            )
        if self.text_to_text is None and num_tokens >= context:
            raise ContextLengthError(
                f"the prompt has {num_tokens} tokens, and the model's context {context} for prompt "
                "and output: shorten the prompt"
            )

    def _check_capacity(self, num_tokens: int, max_new_tokens: int | None) -> None:
        """Refuse a prompt that has no room in the KV cache with its output."""
        capacity = self.main.capacity
        num_new = 1 if max_new_tokens is None else max_new_tokens
        needed = min(num_tokens + num_new, self.main.max_length)
        if capacity is not None and needed > capacity:
            raise CacheFullError(
                "prompt and ",
                Option("max_new_tokens"),
                f" need {needed} tokens of KV cache, ",
                Option("kv_cache_size"),
                f" has room for {capacity}: raise it, or lower ",
                Option("max_new_tokens"),
            )

    def _references(self, options: GenerationOptions) -> References:
        """Reference texts; all choices of a request share them and their index."""
        texts = as_tuple(options.reference_texts)
        key = (options.cache_salt, texts)
        if (known := self._shared.get(key)) is not None:
            return known
        context = self.main.max_length
        for text in texts:
            require_room(Option("reference_texts", text), text, self.tokenizer, context)
        read = References([self.tokenizer.encode_rendered(text).ids for text in texts])
        num_tokens = sum(map(len, read.texts))
        if num_tokens > context:
            raise OptionError(
                Option("reference_texts", texts),
                f" have {num_tokens} tokens, the model's context {context}: shorten them",
            )
        self._shared[key] = read
        return read

    def _length_limit(self, num_tokens: int, max_new_tokens: int | None) -> tuple[int, LengthLimit]:
        """The maximum length of a sequence of `num_tokens`, and the limit that sets it."""
        limits: dict[LengthLimit, int] = {}
        if max_new_tokens is not None:
            limits["max_new_tokens"] = num_tokens + max_new_tokens
        limits["max_model_len"] = self.main.max_length
        if self.main.capacity is not None:
            limits["kv_cache_size"] = self.main.capacity
        name = min(limits, key=limits.__getitem__)  # the first of equal ones
        return limits[name], name


def _require_no_languages(options: GenerationOptions) -> None:
    for name in ("src_lang", "tgt_lang"):
        if (given := getattr(options, name)) is not None:
            raise OptionError(Option(name, given), " needs an encoder-decoder model: leave it out")


@dataclass(frozen=True)
class Kept:
    """Prompt and output in the prefix cache, with their salt."""

    tokens: Sequence[int]
    cache_salt: str | None = None


@dataclass(frozen=True)
class Generation:
    """A checked prompt with its sequence and output.

    num_prompt_tokens: tokens of the sequence that are not output.
    """

    sequence: EngineSequence
    options: GenerationOptions
    output: Output
    num_prompt_tokens: int
