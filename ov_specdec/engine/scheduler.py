"""Which sequences run in the next step, with how much of their prompts; who gives memory back.

Source: continuous batching, Yu et al. (Orca, OSDI 2022); chunked prefill beside decoding, Agrawal
et al. (Sarathi-Serve, arXiv 2403.02310).
"""

from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

from ov_specdec.engine.sequence import Cancelled, Sequence
from ov_specdec.errors import CacheFullError
from ov_specdec.planning.costs import GRID
from ov_specdec.planning.planner import Load
from ov_specdec.runner.base import Runner
from ov_specdec.runner.cached_sequence import PREFILL_CHUNK, CachedSequence

DRAFT_PREFILL = 4
"""Tokens of prompts that a draft model's pass prefills, for one of the main model's: its tokens
cost a fourth at most, or it would not pay. Not more than `PREFILL_CHUNK`."""

SPARE = 64
"""Tokens that a sequence needs room for beside its own when it is admitted: a few rounds."""


@dataclass(frozen=True)
class Limits:
    """How much runs at a time.

    max_batch_size: sequences. max_prefill_tokens_per_step: tokens that a pass prefills while
    others are being answered, for each prompt.

    48: while 1,000 tokens are prefilled beside four answers, the 95th percentile of a step of the
    embedded pair is 1.8 to 3.4 times the median of before (32: 1.9 to 3.0, 64: 2.2 to 4.9). With
    mixed prompts, four at a time, 48 has most tokens per second: 32 has 0.87 of them, 64 0.97, 128
    0.96 (medians of four loads). Where several prompts wait, to leave them waiting would cost more
    than the answers gain.
    """

    max_batch_size: int = 16
    max_prefill_tokens_per_step: int = 48


class Share(NamedTuple):
    """A sequence's part in a pass: at most `limit` of the tokens that a cache of it lacks."""

    sequence: Sequence
    cache: CachedSequence
    limit: int
    is_prefill: bool


class Scheduler:
    """Sequences that wait and those that run, first come first served.

    When the memory for KV caches is used up, the newest sequence gives its own back and waits; what
    it was fed is fed again later, so its output is the same. It sees sequences and free memory, no
    logits.
    """

    def __init__(self, main: Runner, draft: Runner | None, limits: Limits) -> None:
        self._models = [main] if draft is None else [main, draft]
        self._limits = limits
        self.waiting: deque[Sequence] = deque()
        # In the order of their arrival, but for those that were suspended.
        self.running: list[Sequence] = []
        self.num_preemptions = 0
        """How often a sequence gave its memory back to others."""

    @property
    def has_work(self) -> bool:
        """Whether a step would do anything."""
        return bool(self.running) or any(sequence.may_go_on for sequence in self.waiting)

    def add(self, sequence: Sequence) -> None:
        """Have a sequence run as soon as there is room."""
        sequence.is_added = True
        self.waiting.append(sequence)

    def schedule(self) -> None:
        """Let go of those that run no more, and let those run that there is room for."""
        self.sweep()
        limits = [self._limits.max_batch_size, *(model.max_sequences for model in self._models)]
        most = min(limit for limit in limits if limit is not None)
        for sequence in [s for s in self.waiting if s.may_go_on]:
            if len(self.running) >= most or not self._has_room(sequence):
                return
            self.waiting.remove(sequence)
            self._admit(sequence)

    def _admit(self, sequence: Sequence) -> None:
        try:
            sequence.admit(is_alone=not self.running)
        except BaseException as error:
            sequence.end(error)
            if not isinstance(error, Exception):
                raise
        else:
            self.running.append(sequence)

    def sweep(self) -> None:
        """Let go of those that have ended, were cancelled, or have to wait for their readers."""
        if not any(sequence.is_leaving for sequence in (*self.running, *self.waiting)):
            return
        for sequence in (*self.running, *self.waiting):
            if sequence.is_cancelled and not sequence.has_ended:
                sequence.end(Cancelled())
        self.running = [s for s in self.running if not s.has_ended]
        self.waiting = deque(s for s in self.waiting if not s.has_ended)
        for sequence in [s for s in self.running if s.is_far_ahead]:
            self._suspend(sequence)

    def preempt(self, error: CacheFullError) -> None:
        """Have the newest sequence give its memory back and wait; the error is for one alone."""
        newest = self.running[-1]
        if len(self.running) > 1:
            self.num_preemptions += 1
            self._suspend(newest)
        else:
            self.running.clear()
            newest.end(error)

    def shares(self, model: Runner, num_prefilled: int = 0) -> list[Share]:
        """Who takes part in the next pass of a model: all that wait for it, if there is room.

        num_prefilled: tokens of prompts that it was fed in this step.
        """
        shares: list[Share] = []
        budget: int | None = None
        for sequence in self.running:
            cache = sequence.waits_for
            if not isinstance(cache, CachedSequence) or cache.runner is not model:
                continue
            if sequence.is_cancelled:
                continue
            limit, is_prefill = cache.num_pending, sequence.is_prefilling
            if is_prefill:
                if budget is None:
                    budget = self._prefill_budget_of(model) - num_prefilled
                limit = min(limit, budget)
                budget -= max(limit, 0)
            if limit > 0:
                shares.append(Share(sequence, cache, limit, is_prefill))
        return shares

    @property
    def load(self) -> Load:
        """What the next pass of the main model holds, whatever is drafted."""
        decoding, num_prefill = self._decoding, 0
        if len(decoding) < len(self.running):
            lacking = sum(s.num_to_verify for s in self.running if s.is_prefilling)
            num_prefill = min(lacking, self.prefill_budget)
        return Load(
            len(self.running),
            len(decoding),
            sum([sequence.num_to_verify for sequence in decoding]),
            num_prefill,
            sum([len(sequence.tokens) for sequence in self.running]),
        )

    def _prefill_budget_of(self, model: Runner) -> int:
        """The same of a pass of this model."""
        budget = self.prefill_budget
        return budget if model is self._models[0] else min(DRAFT_PREFILL * budget, PREFILL_CHUNK)

    @property
    def prefill_budget(self) -> int:
        """Tokens of prompts that a pass may prefill: few where somebody would have to wait for it.

        With what is verified beside them they fill one of the usual sizes, where that is possible.
        """
        decoding = self._decoding
        if not decoding:
            return PREFILL_CHUNK
        num_prefilling = len(self.running) - len(decoding)
        if not num_prefilling:
            return 0
        most = min(self._limits.max_prefill_tokens_per_step * num_prefilling, PREFILL_CHUNK)
        verified = sum(sequence.num_to_verify for sequence in decoding)
        size = max(size for size in GRID if size <= verified + most)
        return size - verified if size > verified else most

    @property
    def _decoding(self) -> list[Sequence]:
        """Those whose prefill is done."""
        return [sequence for sequence in self.running if not sequence.is_prefilling]

    def _has_room(self, sequence: Sequence) -> bool:
        """Whether no running sequence is likely to be suspended for this one."""
        for model in self._models:
            if self.running and model.num_free is not None:
                pending = sum(other.num_pending(model) for other in self.running)
                needed = max(len(sequence.tokens), sequence.num_pending(model))
                if model.num_free - pending < needed + SPARE:
                    return False
        return True

    def _suspend(self, sequence: Sequence) -> None:
        sequence.suspend()
        self.running.remove(sequence)
        self.waiting.appendleft(sequence)
