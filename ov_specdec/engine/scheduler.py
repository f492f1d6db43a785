"""The scheduler: admits sequences, sizes prefill chunks, and preempts when memory runs out.

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
"""Ratio of prefill chunks, draft to main model: a draft model that pays takes at most a fourth of
the time for each token. `PREFILL_CHUNK` is the limit."""

SPARE = 64
"""Free tokens for a few rounds that an admitted sequence needs besides its prompt."""


@dataclass(frozen=True)
class Limits:
    """Limits of one step.

    max_batch_size: sequences. max_prefill_tokens_per_step: prefill tokens of a pass for each
    prompt that is being prefilled, while other sequences decode; the first may take those of all.

    48: while 1,000 tokens are prefilled and four sequences decode, the 95th percentile of a step of
    the embedded pair is 1.8 to 3.4 times the median without prefill (32: 1.9 to 3.0, 64: 2.2 to
    4.9). With mixed prompts at concurrency 4, throughput is highest at 48: 32 has 0.87 of it, 64
    0.97, 128 0.96 (medians of four loads). The limit is for each prompt, because delaying waiting
    prompts costs more than the decoding sequences gain.
    """

    max_batch_size: int = 16
    max_prefill_tokens_per_step: int = 48


class Share(NamedTuple):
    """A sequence's part of a pass: up to `limit` tokens that its cache lacks."""

    sequence: Sequence
    cache: CachedSequence
    limit: int
    is_prefill: bool


class Scheduler:
    """Waiting and running sequences, first come, first served.

    When the memory for KV caches is used up, the newest sequence is preempted: it frees its blocks,
    waits, and recomputes its cache later, so its output is the same.
    """

    def __init__(self, main: Runner, draft: Runner | None, limits: Limits) -> None:
        self._models = [main] if draft is None else [main, draft]
        self._limits = limits
        self.waiting: deque[Sequence] = deque()
        # In order of arrival, except for those that were preempted.
        self.running: list[Sequence] = []
        self.num_preemptions = 0
        """Preemptions for lack of memory."""

    @property
    def has_work(self) -> bool:
        """Whether a step would do anything."""
        return bool(self.running) or any(sequence.may_go_on for sequence in self.waiting)

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence."""
        sequence.is_added = True
        self.waiting.append(sequence)

    def schedule(self) -> None:
        """Remove sequences that have ended, and admit waiting ones that fit."""
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
        """Remove sequences that ended or were cancelled, and preempt those far ahead of readers."""
        if not any(sequence.is_leaving for sequence in (*self.running, *self.waiting)):
            return
        for sequence in (*self.running, *self.waiting):
            if sequence.is_cancelled and not sequence.has_ended:
                sequence.end(Cancelled())
        self.running = [s for s in self.running if not s.has_ended]
        self.waiting = deque(s for s in self.waiting if not s.has_ended)
        for sequence in [s for s in self.running if s.is_far_ahead]:
            self._requeue(sequence)

    def preempt(self, error: CacheFullError) -> None:
        """Preempt the newest sequence; the only one ends with the error instead."""
        newest = self.running[-1]
        if len(self.running) > 1:
            self.num_preemptions += 1
            self._requeue(newest)
        else:
            self.running.clear()
            newest.end(error)

    def shares(self, model: Runner, num_prefilled: int = 0) -> list[Share]:
        """The parts of a model's next pass: all sequences that wait for it, as far as they fit.

        num_prefilled: prompt tokens that it prefilled in this step.
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
        """The content of the main model's next pass without draft tokens."""
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
        """`prefill_budget` for this model."""
        budget = self.prefill_budget
        return budget if model is self._models[0] else min(DRAFT_PREFILL * budget, PREFILL_CHUNK)

    @property
    def prefill_budget(self) -> int:
        """Prefill tokens of a pass, of all prompts together: fewer while other sequences decode.

        Together with the tokens to verify they fill one of the usual sizes, if possible.
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
        """Sequences whose prefill is done."""
        return [sequence for sequence in self.running if not sequence.is_prefilling]

    def _has_room(self, sequence: Sequence) -> bool:
        """Whether it fits without preempting a running sequence soon."""
        for model in self._models:
            if self.running and model.num_free is not None:
                pending = sum(other.num_pending(model) for other in self.running)
                needed = max(len(sequence.tokens), sequence.num_pending(model))
                if model.num_free - pending < needed + SPARE:
                    return False
        return True

    def _requeue(self, sequence: Sequence) -> None:
        sequence.preempt()
        self.running.remove(sequence)
        self.waiting.appendleft(sequence)
