"""One prompt and its output: ids, limits, KV caches, and state in the scheduler."""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ov_specdec.drafters.base import Drafter, Steps
from ov_specdec.engine.output import Round
from ov_specdec.planning.draft_length import FULL, Bid, ConstantLength, Plan, PlanRequest, Policy
from ov_specdec.runner.base import Runner
from ov_specdec.runner.cached_sequence import CachedSequence
from ov_specdec.sampling.processors import Follower, LogitsProcessor
from ov_specdec.sampling.samplers import Sampler
from ov_specdec.stats import FinishReason

MAX_LAG = 16
"""Tokens that a cache may lack before those with wanted rows, such as a draft model's cache after
rounds without it. A sequence that lacks more is in its prefill."""

PLAIN = ConstantLength(0)

MAX_UNREAD = 64
"""Chunks that a stream may be ahead of its reader: seconds of reading, and little memory."""


class Cancelled(Exception):  # noqa: N818 - not an error: the caller asked for it
    """A caller cancelled the sequence."""


@dataclass(frozen=True)
class WantedLogprobs:
    """Requested log-probabilities.

    output, prompt: number of top log-probabilities at each token; None: none at all. processors:
    applied to the rows of logits first.
    """

    output: int | None = None
    prompt: int | None = None
    processors: tuple[LogitsProcessor, ...] = ()


@dataclass(eq=False)
class Sequence:
    """Prompt and output, when to end, and the KV caches that hold them.

    tokens: prompt and output, owned by the sequence alone. max_length: maximum length of both
    together. cache: the main model's. sampler: chooses the main model's tokens. drafter: proposes
    draft tokens; None for plain decoding. policy: chooses draft lengths. eos_token_ids: tokens that
    end it. keeps_cache: whether other sequences may reuse its final KV caches. finish_reason: None
    until it ends, "stop" after an end-of-sequence token, "length" at max_length; it alone decides
    where the output ends, so speculation ends it where plain decoding does.

    prepare: called before its first round if no other sequence runs; it may run passes. publish:
    turns a round into output for the reader; it may end the sequence. max_unread: unread chunks at
    which it is preempted; None if it is read only at its end. on_end: called once when it has
    ended, in the stepping thread, or else in the thread that cancels it.
    """

    tokens: list[int]
    max_length: int
    cache: CachedSequence
    sampler: Sampler
    drafter: Drafter | None = None
    policy: Policy = PLAIN
    eos_token_ids: frozenset[int] = frozenset()
    logprobs: WantedLogprobs = WantedLogprobs()
    keeps_cache: bool = True
    publish: Callable[["Sequence", Round], Iterable[Any]] = lambda _, round_: (round_,)
    max_unread: int | None = MAX_UNREAD
    on_end: Callable[[BaseException | None], None] | None = None
    prepare: Callable[[], object] | None = None
    finish_reason: FinishReason | None = None
    num_rounds: int = field(default=0, init=False)
    unread: deque[Any] = field(default_factory=deque, init=False)
    error: BaseException | None = field(default=None, init=False)
    has_ended: bool = field(default=False, init=False)
    is_cancelled: bool = field(default=False, init=False)
    is_added: bool = field(default=False, init=False)
    is_preempted: bool = field(default=False, init=False)
    waits_for: PlanRequest | CachedSequence | None = field(default=None, init=False)
    """None between rounds."""
    num_planned: int = field(default=0, init=False)
    """Planned draft tokens of the current round, until they are proposed."""
    present_round: Steps[Round] | None = field(default=None, init=False)

    def extend(self, tokens: Iterable[int]) -> list[int]:
        """Append tokens up to the end of the sequence. Returns the appended ones."""
        kept: list[int] = []
        for token in tokens:
            if len(self.tokens) + len(kept) >= self.max_length:
                break
            kept.append(token)
            if token in self.eos_token_ids:
                self.finish_reason = "stop"
                break
        self.tokens += kept
        for follower in self._followers:
            follower.follow(kept)
        if self.finish_reason is None and len(self.tokens) >= self.max_length:
            self.finish_reason = "length"
        return kept

    @cached_property
    def _followers(self) -> list[Follower]:
        """Processors that keep state of the text."""
        processors: tuple[object, ...] = self.sampler.processors
        return [each for each in processors if isinstance(each, Follower)]

    def cancel(self) -> None:
        """End it within one pass. From any thread."""
        self.is_cancelled = True

    @property
    def caches(self) -> tuple[CachedSequence, ...]:
        """Its KV caches, the main model's first."""
        return (self.cache, *(self.drafter.caches if self.drafter else ()))

    @property
    def room(self) -> int:
        """Maximum number of draft tokens, with one place left for the main model's own token.

        With LongRoPE, all draft tokens of a pass have to be on the same side of the border.
        """
        num_tokens = len(self.tokens)
        return min(self.max_length - num_tokens, self.cache.room(num_tokens)) - 1

    @property
    def has_unread(self) -> bool:
        """Whether there is output to read, or the sequence has ended."""
        return bool(self.unread) or self.has_ended

    @property
    def is_far_ahead(self) -> bool:
        """Whether it has to wait for its reader."""
        return self.max_unread is not None and len(self.unread) >= self.max_unread

    @property
    def may_go_on(self) -> bool:
        """Whether it may run: its reader has read half of the unread chunks."""
        return self.max_unread is None or len(self.unread) <= self.max_unread // 2

    @property
    def is_leaving(self) -> bool:
        """Whether it has to leave the running sequences, for now or for good."""
        return self.has_ended or self.is_cancelled or self.is_far_ahead

    @property
    def is_ready(self) -> bool:
        """Whether it waits for nothing: between rounds, or after an interrupted pass."""
        cache = self.waits_for
        return cache is None or (isinstance(cache, CachedSequence) and not cache.num_pending)

    @property
    def is_prefilling(self) -> bool:
        """Whether it is in its prefill, of the main model or of a draft model."""
        cache = self.waits_for
        if self.num_rounds == 0:
            return True
        return isinstance(cache, CachedSequence) and cache.num_lacking > MAX_LAG

    @property
    def lacks_hidden_states(self) -> bool:
        """Whether its drafter needs hidden states of tokens that the main model must recompute."""
        return bool(self.cache.readers) and self.cache.length < len(self.tokens) - 1

    @property
    def num_to_verify(self) -> int:
        """Tokens that it adds to the main model's next pass, as far as decided."""
        return self.cache.num_pending if self.waits_for is self.cache else 1 + self.num_planned

    def num_pending(self, runner: Runner) -> int:
        """Tokens that this model's cache lacks."""
        return sum(cache.num_pending for cache in self.caches if cache.runner is runner)

    def answer(self) -> Plan | Bid | None:
        """Its draft-length plan, or its bid for draft tokens; None if it asks for none."""
        if not isinstance(self.waits_for, PlanRequest):
            return None
        answer = self.policy.answer(self.waits_for)
        if isinstance(answer, Bid):
            return answer if self.room > 0 else FULL
        return answer

    def admit(self, *, is_alone: bool) -> None:
        """Start, or resume after `preempt` with the blocks that are still cached."""
        prepare, self.prepare = self.prepare, None
        if prepare is not None and is_alone:
            prepare()
        if self.is_preempted:
            self.is_preempted = False
            for cache in self.caches:
                cache.match_prefix()

    def preempt(self) -> None:
        """Free its KV caches, which are recomputed later.

        An unfinished draft from hidden states is dropped: those are recomputed too.
        """
        if self.cache.readers and self.waits_for is not self.cache:
            self.present_round, self.waits_for, self.num_planned = None, None, 0
        self.is_preempted = True
        for cache in self.caches:
            cache.free()

    def end(self, error: BaseException | None = None) -> None:
        """Mark it as finished, failed or cancelled."""
        for cache in self.caches:
            if self.keeps_cache:
                cache.free()
            else:
                cache.discard()
        self.present_round = self.waits_for = None
        self.error = self.error or error
        self.has_ended = True
        on_end, self.on_end = self.on_end, None
        if on_end is not None:
            on_end(self.error)
