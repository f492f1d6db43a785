"""Text in, text out: encodes the prompt, runs the engine, and turns its tokens into text."""

from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from threading import Event, RLock
from typing import Literal

from ov_specdec.cache.sequence import CachedSequence, Cancelled
from ov_specdec.errors import ContextLengthError, OptionError
from ov_specdec.options import GenerationOptions
from ov_specdec.sampling.from_options import make_samplers
from ov_specdec.sampling.samplers import Sampler
from ov_specdec.speculation.drafters import Drafter
from ov_specdec.speculation.drafters.factory import DrafterFactory
from ov_specdec.speculation.engine import Round, SequenceState, decode, speculate
from ov_specdec.speculation.schedule import LearnedStats, make_policy
from ov_specdec.stats import FinishReason, GenerationStats
from ov_specdec.text.detokenizer import IncrementalDetokenizer
from ov_specdec.text.prompt import Prompt, encode_prompt
from ov_specdec.text.tokenizer import Tokenizer
from ov_specdec.text.transcript import Transcript

Origin = Literal["draft", "correction", "bonus", "plain"]
"""Where tokens come from: accepted candidates; the main model's own token in place of a rejected
candidate; its own after all candidates were accepted; its own in a round without candidates."""


@dataclass(frozen=True)
class Chunk:
    """A piece of output: tokens of one round that have one origin.

    text: what may be shown now; a piece of text may come later than its tokens. rejected_ids: the
    candidates that were rejected, on the correction that took the place of the first of them.
    finish_reason and stats: set on the last chunk only; "stop" is an end-of-sequence token or a
    stop string, "length" the budget, "cancelled" a stream that was cancelled.
    """

    text: str
    token_ids: list[int]
    origin: Origin
    rejected_ids: list[int] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    stats: GenerationStats | None = None

    @property
    def from_draft(self) -> bool:
        """Whether the tokens are accepted candidates, or else the main model's own."""
        return self.origin == "draft"


@dataclass(frozen=True)
class GenerationResult:
    """A finished generation. `text` and `token_ids` hold the output without the prompt."""

    text: str
    token_ids: list[int]
    finish_reason: FinishReason
    stats: GenerationStats


class GenerationStream:
    """The chunks of one generation, as they come: an iterator that any thread may end.

    The last chunk has a finish reason and the statistics.
    """

    def __init__(self, chunks: Generator[Chunk, None, None], cancelled: Event) -> None:
        self._chunks = chunks
        self._cancelled = cancelled
        self._advancing = RLock()

    def __iter__(self) -> "GenerationStream":
        return self

    def __next__(self) -> Chunk:
        with self._advancing:
            return next(self._chunks)

    def cancel(self) -> None:
        """End the generation within one pass of a model; its last chunk comes, and says so.

        Returns at once. May be called from any thread, while the prompt is read too.
        """
        self._cancelled.set()

    def close(self) -> None:
        """End the generation without a last chunk, and free the pipeline for the next one.

        Waits for a pass that is running in another thread.
        """
        self.cancel()
        with self._advancing:
            self._chunks.close()

    def __enter__(self) -> "GenerationStream":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


@dataclass(frozen=True)
class TextGenerator:
    """A main model's cache, its tokenizer, and the drafters for it.

    vocab_size: ids below it have a token. eos_token_ids: what ends a text unless options say so.
    learned: what generations before have taught about the speed of the models. transcript: their
    answers, which later prompts may hold.
    """

    main: CachedSequence
    tokenizer: Tokenizer
    vocab_size: int
    eos_token_ids: frozenset[int]
    drafters: DrafterFactory
    learned: LearnedStats = field(default_factory=LearnedStats)
    transcript: Transcript = field(default_factory=Transcript)

    def stream(
        self, prompt: Prompt, options: GenerationOptions, cancelled: Event
    ) -> Generator[Chunk, None, None]:
        """Check prompt and options, then generate: yields each round's tokens as they come.

        cancelled: ends the generation within one pass once it is set.
        """
        self._check_ids("an option", options.token_ids())
        ids = self.encode(prompt, options)
        eos = self.eos_token_ids if options.eos_token_ids is None else options.eos_token_ids
        length = min(len(ids) + options.max_new_tokens, self.main.max_length)
        state = SequenceState(ids.copy(), length, eos, cancelled=cancelled)
        samplers = make_samplers(options, prompt_length=len(ids), eos_token_ids=eos)
        drafter = self.drafters.make(options, samplers.draft)
        if drafter is None:
            rounds = decode(self.main, samplers.main, state)
        else:
            rounds = self._speculate(options, drafter, samplers.main, state)
        if not options.cache_prompt:
            rounds = self._on_empty_caches(rounds)
        shown = IncrementalDetokenizer(self.tokenizer.decode, ids, options.stops)
        return self._remembered(_chunks(rounds, state, shown, GenerationStats(len(ids))), len(ids))

    def _speculate(
        self, options: GenerationOptions, drafter: Drafter, sampler: Sampler, state: SequenceState
    ) -> Iterator[Round]:
        """The rounds of a generation, from which costs are learnt; they may be measured first."""
        costs = self.learned.costs
        policy = make_policy(options, drafter.sources, self.learned)
        try:
            for round_ in speculate(self.main, drafter, policy, sampler, state):
                costs.learn(round_.stats)
                yield round_
        finally:
            costs.keep()

    def _on_empty_caches(self, rounds: Iterator[Round]) -> Iterator[Round]:
        """The same rounds; what the KV caches hold is forgotten before the first one."""
        self.main.clear()
        if self.drafters.draft is not None:
            self.drafters.draft.cache.clear()
        yield from rounds

    def encode(self, prompt: Prompt, options: GenerationOptions) -> list[int]:
        """The prompt's ids; `OptionError` if it is empty, too long or not to be read."""
        ids = encode_prompt(prompt, options, self.tokenizer, self.transcript)
        if not ids:
            raise OptionError("the prompt is empty: give at least one token of text")
        if len(ids) >= self.main.max_length:
            raise ContextLengthError(
                f"the prompt has {len(ids)} tokens, the model's context {self.main.max_length} "
                "with the output: shorten the prompt"
            )
        self._check_ids("the prompt", ids)
        return ids

    def _remembered(
        self, chunks: Generator[Chunk, None, None], start: int
    ) -> Generator[Chunk, None, None]:
        """Pass chunks on, and keep what came of them, wherever they end, for later turns."""
        texts, ids = [], []
        with closing(chunks):
            try:
                for chunk in chunks:
                    texts.append(chunk.text)
                    ids += chunk.token_ids
                    yield chunk
            finally:
                self.transcript.remember("".join(texts), ids, start=start)

    def _check_ids(self, where: str, ids: Iterable[int]) -> None:
        for token in ids:
            if not 0 <= token < self.vocab_size:
                raise OptionError(
                    f"{where} holds token id {token}: the model has 0 to {self.vocab_size - 1}"
                )


def _chunks(
    rounds: Iterator[Round],
    state: SequenceState,
    shown: IncrementalDetokenizer,
    stats: GenerationStats,
) -> Generator[Chunk, None, None]:
    """The engine's rounds as chunks of text, up to the first stop string."""
    try:
        for round_ in rounds:
            chunks = []
            for piece in _pieces(round_):
                kept = piece.token_ids[: shown.push(piece.token_ids)]
                chunks.append(replace(piece, text=shown.take(), token_ids=kept))
                if shown.stopped:
                    break
            num_generated = sum(len(chunk.token_ids) for chunk in chunks)
            stats.rounds.append(replace(round_.stats, num_generated=num_generated))
            reason = "stop" if shown.stopped else state.finish_reason
            if reason is not None:
                tail = chunks[-1].text + shown.finish()
                chunks[-1] = replace(chunks[-1], text=tail, finish_reason=reason, stats=stats)
            yield from chunks
            if shown.stopped:
                return
    except Cancelled:
        yield Chunk(shown.finish(), [], "plain", finish_reason="cancelled", stats=stats)


def _pieces(round_: Round) -> list[Chunk]:
    """A round's tokens by origin, yet without text."""
    cut = round_.num_from_draft
    accepted, own = round_.tokens[:cut], round_.tokens[cut:]
    rejected = round_.candidates[cut:]
    pieces = [Chunk("", accepted, "draft")] if accepted else []
    if own and rejected:
        pieces.append(Chunk("", own, "correction", rejected))
    elif own:
        pieces.append(Chunk("", own, "bonus" if round_.candidates else "plain"))
    return pieces


def collect(chunks: Iterable[Chunk]) -> GenerationResult:
    """The result that a stream of chunks, read to its end, amounts to."""
    texts, token_ids = [], []
    for chunk in chunks:
        texts.append(chunk.text)
        token_ids += chunk.token_ids
        if chunk.finish_reason is not None and chunk.stats is not None:
            return GenerationResult("".join(texts), token_ids, chunk.finish_reason, chunk.stats)
    raise OptionError("the stream ended before its last chunk: read it from the beginning")
