"""A request: the speculation of one sequence, what it waits for, and what is to be read of it."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from ov_specdec.cache.sequence import CachedSequence
from ov_specdec.cache.session import Runner
from ov_specdec.speculation.draft_length import Ask, Bid, Plan
from ov_specdec.speculation.drafters import Steps
from ov_specdec.speculation.engine import Round, Speculation

T = TypeVar("T")

MAX_LAG = 16
"""Tokens that a cache may lack beside those whose rows are wanted, as a draft model's does after
rounds without it. A sequence that lacks more is reading."""

MAX_UNREAD = 64
"""Pieces that a stream may be ahead of its reader: seconds of reading, and little memory."""


class Cancelled(Exception):  # noqa: N818 - no error: somebody asked for it
    """A request ended because it was cancelled."""


@dataclass
class Request(Generic[T]):
    """One sequence among those that the scheduler runs.

    start: makes its speculation, when it is first admitted. publish: what its reader gets of a
    round; it may end the sequence. num_tokens: of its prompt. keeps_cache: whether what its KV
    caches hold in the end is left to other sequences. max_unread: pieces that nobody has read, at
    which it is suspended; None for a request that is read at its end. on_end: told once that it has
    ended, in the thread that runs steps, or that cancels it where none does. prepare: called before
    it starts where no other one runs: it may run passes that others would wait for.
    """

    start: Callable[[], Speculation]
    publish: Callable[[Round], Sequence[T]]
    num_tokens: int
    keeps_cache: bool = True
    max_unread: int | None = MAX_UNREAD
    on_end: Callable[[BaseException | None], None] | None = None
    prepare: Callable[[], object] | None = None
    unread: deque[T] = field(default_factory=deque, init=False)
    error: BaseException | None = field(default=None, init=False)
    has_ended: bool = field(default=False, init=False)
    is_cancelled: bool = field(default=False, init=False)
    is_submitted: bool = field(default=False, init=False)
    speculation: Speculation | None = field(default=None, init=False)
    waits_for: Ask | CachedSequence | None = field(default=None, init=False)
    """None between rounds."""
    num_planned: int = field(default=0, init=False)
    """Candidates that are to be drafted."""
    _round: Steps[Round] | None = field(default=None, init=False)

    def cancel(self) -> None:
        """End it within one pass. From any thread."""
        self.is_cancelled = True

    @property
    def has_news(self) -> bool:
        """Whether there is something to read, or nothing more will come."""
        return bool(self.unread) or self.has_ended

    @property
    def is_far_ahead(self) -> bool:
        """Whether it has to wait for its reader."""
        return self.max_unread is not None and len(self.unread) >= self.max_unread

    @property
    def may_go_on(self) -> bool:
        """Whether it need not wait for its reader any more, who has read half of what there was."""
        return self.max_unread is None or len(self.unread) <= self.max_unread // 2

    @property
    def is_leaving(self) -> bool:
        """Whether it is not to run on, for now or for good."""
        return self.has_ended or self.is_cancelled or self.is_far_ahead

    @property
    def is_ready(self) -> bool:
        """Whether it waits for nothing: between rounds, or after a pass that was interrupted."""
        cache = self.waits_for
        return cache is None or (isinstance(cache, CachedSequence) and not cache.num_pending)

    @property
    def speculating(self) -> Speculation:
        """Its speculation, once it is admitted."""
        if self.speculation is None:
            raise RuntimeError("a request runs that was not admitted")
        return self.speculation

    @property
    def is_reading(self) -> bool:
        """Whether its prompt is being read: by the main model, or later by a draft model."""
        cache = self.waits_for
        lags = isinstance(cache, CachedSequence) and cache.num_lacking > MAX_LAG
        return lags or self.speculating.num_rounds == 0

    @property
    def caches(self) -> tuple[CachedSequence, ...]:
        """Its KV caches, none before it is admitted."""
        if self.speculation is None:
            return ()
        drafter = self.speculation.drafter
        return (self.speculation.main, *(drafter.caches if drafter else ()))

    @property
    def num_to_verify(self) -> int:
        """Tokens that it adds to the main model's next pass, as far as that is decided."""
        if self.waits_for is self.speculating.main:
            return self.speculating.main.num_pending
        return 1 + self.num_planned

    def num_pending(self, runner: Runner) -> int:
        """Tokens that this model is still to be fed."""
        return sum(cache.num_pending for cache in self.caches if cache.runner is runner)

    def admit(self, *, is_alone: bool) -> None:
        """Take up running, for the first time or after `suspend`. is_alone: no other one runs."""
        try:
            if self.speculation is None:
                if is_alone and self.prepare is not None:
                    self.prepare()
                self.speculation = self.start()
            else:
                for cache in self.caches:
                    cache.adopt()
        except BaseException as error:
            self.end(error)
            if not isinstance(error, Exception):
                raise

    def bid(self) -> Bid | None:
        """What its candidates promise; None where its plan depends on nothing else."""
        if isinstance(self.waits_for, Ask) and self.speculating.room > 0:
            return self.speculating.policy.bid(self.waits_for)
        return None

    def own_plan(self) -> Plan | None:
        """How far it drafts, by what it alone knows."""
        return self.speculating.plan(self.waits_for) if isinstance(self.waits_for, Ask) else None

    def resume(self, plan: Plan | None = None) -> None:
        """Go on to where it waits again, or to the end of the round."""
        if plan is not None:
            self.num_planned = plan.length
        try:
            self.waits_for = self._present_round().send(plan)
        except StopIteration as done:
            self._round = self.waits_for = None
            self.num_planned = 0
            self.num_tokens = len(self.speculating.state.tokens)
            self._publish(done.value)
        except BaseException as error:
            self.end(error)
            if not isinstance(error, Exception):
                raise

    def suspend(self) -> None:
        """Give the memory of its KV caches back; what was in them is read again later."""
        for cache in self.caches:
            cache.leave()

    def end(self, error: BaseException | None = None) -> None:
        """It has finished or failed, or was cancelled."""
        for cache in self.caches:
            if self.keeps_cache:
                cache.leave()
            else:
                cache.drop()
        self._round = self.waits_for = None
        self.error = self.error or error
        is_first_time, self.has_ended = not self.has_ended, True
        if is_first_time and self.on_end is not None:
            self.on_end(self.error)

    def _publish(self, round_: Round) -> None:
        try:
            self.unread.extend(self.publish(round_))
        except Exception as error:
            self.end(error)
        if self.speculating.state.finish_reason is not None:
            self.end()

    def _present_round(self) -> Steps[Round]:
        if self._round is None:
            self._round = self.speculating.round()
        return self._round
