"""The scheduler: admits sequences, sizes prefill chunks, and preempts when memory runs out.

Source: continuous batching, Yu et al. (Orca, OSDI 2022); chunked prefill beside decoding, Agrawal
et al. (Sarathi-Serve, arXiv 2403.02310).
"""

from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from time import monotonic
from typing import Generic, NamedTuple, Protocol, TypeVar

from ov_specdec.engine.sequence import Cancelled, Sequence, State
from ov_specdec.errors import CacheFullError
from ov_specdec.planning.costs import GRID
from ov_specdec.planning.planner import Load
from ov_specdec.runner.base import Runner
from ov_specdec.runner.cached_sequence import PREFILL_CHUNK, CachedSequence

DRAFT_PREFILL = 4
"""Ratio of prefill chunks, draft to main model: a draft model that pays takes at most a fourth of
the time for each token. `PREFILL_CHUNK` is the limit."""

SHARED_CHUNK = 64
"""`PREFILL_CHUNK` of several tenants, as a request of one waits for a pass of another's prompt.

With AVX2, a token of a smaller chunk takes longer, and one of 512 tokens as long: SmolLM2 in int8
takes 2.7 ms for each token of 32, 2.4 of 64 and 2.3 of 512. A pass of 64 takes as long as five
passes of one token, and one of 128 as long as ten.
"""

SHARED_SECONDS = 600.0
"""Seconds for which a tenant is expected to come back after another one's turn."""

SPARE_TOKENS = 64
"""Free tokens for a few rounds that an admitted sequence needs besides its prompt."""


class OfTenant(Protocol):
    """What a tenant wants to run. Tenants share a machine as equals, however much each wants."""

    @property
    def tenant(self) -> Hashable:
        """Whose it is."""


T = TypeVar("T", bound=OfTenant)


class FairQueue(Generic[T]):
    """Items that wait to run. The next is of the tenant with the fewest running ones.

    Of such tenants it is the one whose turn was longest ago, and the items of one tenant are in
    order of arrival. Not thread-safe, except for iteration.
    """

    def __init__(self) -> None:
        self._waiting: dict[Hashable, deque[T]] = {}
        """By tenant, in the order of their turns."""

    def __iter__(self) -> Iterator[T]:
        # From any thread: `list` keeps the GIL, as these iterators are in C.
        return iter(list(chain.from_iterable(self._waiting.values())))

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def add(self, item: T, *, is_first: bool = False) -> None:
        """Append an item to those of its tenant; is_first: or prepend it."""
        queue = self._waiting.setdefault(item.tenant, deque())
        queue.appendleft(item) if is_first else queue.append(item)

    def next(self, running: Iterable[T] = ()) -> T | None:
        """The next item; None if there is none."""
        if not self._waiting:
            return None
        counts = Counter(map(attrgetter("tenant"), running))
        tenant = min(self._waiting, key=counts.__getitem__)
        return self._waiting[tenant][0]

    def take(self, item: T) -> None:
        """Remove an item that is to run; the turn passes on to other tenants."""
        self.remove(item)
        if queue := self._waiting.pop(item.tenant, None):
            self._waiting[item.tenant] = queue

    def remove(self, item: T) -> None:
        """Remove an item that no longer wants to run; its tenant keeps its turn."""
        queue = self._waiting[item.tenant]
        queue.remove(item)
        if not queue:
            del self._waiting[item.tenant]


@dataclass(frozen=True)
class StepLimits:
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
    """What a pass has of a sequence: at most `limit` of the tokens that its cache lacks."""

    sequence: Sequence
    cache: CachedSequence
    limit: int


class Scheduler:
    """Waiting and running sequences: those of a tenant first come, first served.

    When the memory for KV caches is used up, or another tenant waits for its share, the last
    admitted sequence of the tenant with the most running ones is preempted: it frees its blocks,
    waits, and recomputes its cache later, so its output is the same.
    """

    def __init__(self, main: Runner, draft: Runner | None, limits: StepLimits) -> None:
        self._models = [main] if draft is None else [main, draft]
        self.limits = limits
        rooms = [model.max_sequences for model in self._models]
        self._max_running = min([limits.max_batch_size, *[n for n in rooms if n is not None]])
        self.waiting: FairQueue[Sequence] = FairQueue()
        # In order of admission.
        self.running: list[Sequence] = []
        self._latest: tuple[Hashable, ...] = ()
        """The tenant of the sequence that was admitted last; a tuple, as None is a tenant too."""
        self._shared_until = 0.0
        """The end of `SHARED_CHUNK`, by `time.monotonic`."""
        self.on_preemption: Callable[[], object] = lambda: None
        """Called at each preemption."""

    def schedule(self) -> list[Sequence]:
        """Admit waiting sequences that fit. Returns those that run."""
        self.sweep()
        while (sequence := self.waiting.next(self.running)) and self._make_room(sequence):
            self.waiting.take(sequence)
            self._admit(sequence)
        return self.running

    def batch(self, model: Runner, num_prefilled: int = 0) -> list[Share]:
        """A model's next pass: the shares of sequences that wait for it.

        Those of tenants that prefill fewer tokens come first, so that a short prompt does not wait
        for long ones of others. num_prefilled: prompt tokens that it prefilled in this step.
        """
        batch, waiting = list[Share](), list[tuple[Sequence, CachedSequence]]()
        budget: int | None = None
        for sequence in self.running:
            cache = sequence.fed_cache
            if cache is not None and cache.runner is model and not sequence.is_cancelled:
                waiting.append((sequence, cache))
        if len(waiting) > 1:
            lacking = Counter[Hashable]()
            for sequence in self._split()[0]:
                lacking[sequence.tenant] += sequence.num_pending
            waiting.sort(key=lambda each: lacking[each[0].tenant])
        for sequence, cache in waiting:
            if sequence.state is State.PREFILL:
                if budget is None:
                    budget = self._prefill_budget(model) - num_prefilled
                num_tokens = min(cache.num_pending, budget)
                budget -= max(num_tokens, 0)
            else:
                num_tokens = cache.num_pending
            if num_tokens > 0:
                batch.append(Share(sequence, cache, num_tokens))
        return batch

    @property
    def load(self) -> Load:
        """The content of the main model's next pass without draft tokens."""
        prefilling, decoding = self._split()
        num_prefill = sum([sequence.num_pending for sequence in prefilling])
        return Load(
            len(self.running),
            len(decoding),
            sum([sequence.num_pending for sequence in decoding]),
            sum([sequence.num_pending * sequence.cache.length for sequence in decoding]),
            min(num_prefill, self._prefill_budget(self._models[0])) if prefilling else 0,
            sum([sequence.num_forced for sequence in decoding]),
        )

    def _split(self) -> tuple[list[Sequence], list[Sequence]]:
        prefilling, decoding = list[Sequence](), list[Sequence]()
        for sequence in self.running:
            (prefilling if sequence.state is State.PREFILL else decoding).append(sequence)
        return prefilling, decoding

    def _prefill_budget(self, model: Runner) -> int:
        """Prefill tokens of a pass, of all prompts together: fewer while other sequences decode.

        Together with the tokens to verify they fill one of the usual sizes of the main model's
        passes, if possible.
        """
        if model is not self._models[0]:
            return min(DRAFT_PREFILL * self._prefill_budget(self._models[0]), PREFILL_CHUNK)
        chunk, (prefilling, decoding) = PREFILL_CHUNK, self._split()
        if monotonic() < self._shared_until:
            chunk = SHARED_CHUNK * len({sequence.tenant for sequence in prefilling})
        if not decoding:
            return chunk
        most = min(self.limits.max_prefill_tokens_per_step * len(prefilling), chunk)
        num_tokens = sum([sequence.num_pending for sequence in decoding])
        size = max(size for size in GRID if size <= num_tokens + most)
        return size - num_tokens if size > num_tokens else most

    def sweep(self) -> None:
        """Remove sequences that have ended or were cancelled."""
        for queue in (self.running, self.waiting):
            for sequence in [*queue]:
                if sequence.is_cancelled:
                    sequence.end(Cancelled())
                if sequence.state is State.ENDED:
                    queue.remove(sequence)

    def preempt(self, error: CacheFullError) -> None:
        """Preempt the last admitted sequence of the tenant with the most running ones.

        An only one ends with the error.
        """
        if len(self.running) > 1:
            self._requeue(self._last_of_busiest)
        else:
            self.running.pop().end(error)

    def _admit(self, sequence: Sequence) -> None:
        try:
            sequence.admit()
        except BaseException as error:
            sequence.end(error)
            if not isinstance(error, Exception):
                raise
        else:
            self.running.append(sequence)
            if self._latest not in ((), (sequence.tenant,)):
                self._shared_until = monotonic() + SHARED_SECONDS
            self._latest = (sequence.tenant,)

    def _make_room(self, sequence: Sequence) -> bool:
        """Whether it fits, if need be after preempting those of tenants with two more running."""
        while not self._has_room(sequence):
            counts = self._num_running
            if counts[sequence.tenant] > max(counts.values()) - 2:
                return False
            self._requeue(self._last_of_busiest)
        return True

    def _has_room(self, sequence: Sequence) -> bool:
        """Whether it may run too, without preempting a running sequence for memory soon."""
        if not self.running:
            return True
        if len(self.running) >= self._max_running:
            return False
        for model in self._models:
            if model.num_free is not None:
                needed = max(len(sequence.tokens), _num_pending(model, [sequence]))
                free = model.num_free - _num_pending(model, self.running)
                if free < needed + SPARE_TOKENS:
                    return False
        return True

    @property
    def _num_running(self) -> Counter[Hashable]:
        return Counter(sequence.tenant for sequence in self.running)

    @property
    def _last_of_busiest(self) -> Sequence:
        counts = self._num_running
        most = max(counts.values())
        return next(s for s in reversed(self.running) if counts[s.tenant] == most)

    def _requeue(self, sequence: Sequence) -> None:
        sequence.preempt()
        self.on_preemption()
        self.running.remove(sequence)
        self.waiting.add(sequence, is_first=True)


def _num_pending(model: Runner, sequences: Iterable[Sequence]) -> int:
    """Tokens that the caches of a model lack for the rounds of these sequences."""
    caches = [cache for sequence in sequences for cache in sequence.caches]
    return sum([cache.num_pending for cache in caches if cache.runner is model])
