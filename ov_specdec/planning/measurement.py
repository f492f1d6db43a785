"""Measures the cost of passes, interleaved and within a time budget."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator
from dataclasses import replace
from functools import partial
from statistics import median, median_low
from time import perf_counter

from ov_specdec.cache.block_table import BlockTable
from ov_specdec.errors import CacheFullError
from ov_specdec.planning.costs import CostCurve, PassCurve
from ov_specdec.runner.base import Runner, Span
from ov_specdec.runner.cached_sequence import CachedSequence, alone, max_tokens
from ov_specdec.runner.probe import probe_tokens

SWEEPS = 5
"""Sweeps over all sizes, for a median."""

FIRST_SWEEP = (1, 8, 4, 1, 2, 3, 4, 16, 6, 12)
"""Measured sizes, all of `GRID`, the most important first; two twice, for a change of size.

If there is no time for all, passes are long, and a line through one and eight tokens predicts more
than a single pass over 16 that takes half of the time. The very first pass of a size is longer
than any other, so it does not show the cost of a change.
"""

SIZES = tuple(sorted(set(FIRST_SWEEP)))
"""Order of later sweeps."""

WIDE = (32, 64)
"""Sizes for several sequences: measured after the others, if there is time.

The embedded main model takes 0.8 ms for each token up to 16, and 0.3 from there to 64.
"""

CACHED = 16
"""Cached tokens that the passes read: up to 200, passes of a small model grow by less than they
vary."""

LONG = 1024
"""Cached tokens that a pass reads for the cost of reading them."""

LARGEST_ROOM = LONG + WIDE[-1]
"""Tokens of a sequence that has room for all of the passes."""

LEAST = 5
"""Measurements of the main model that every curve needs, however long they take: 1, 8, 4, 1, and
one behind a long text.

All of the draft's come before them. A first generation waits for these. Curves of them alone differ
from those of all sizes by less than 10 % up to 16 tokens, and use corrects them.
"""

DRAFT_SIZES = (16, 2, 1)
"""Passes of a draft model: prefill, one that also feeds the last accepted draft token, and a
step."""

PARALLEL_SIZES = (16, 8, 1)
"""Passes of a draft model that drafts all tokens in one, which vary in size."""


class PassTimes:
    """Times of passes of one model, over a sequence of its own.

    size_read: tokens of the pass behind a long text.
    """

    def __init__(
        self, model: Runner, new_namespace: Callable[[], Hashable], size_read: int = 8
    ) -> None:
        self._model, self._new_namespace = model, new_namespace
        self.draft_sizes = DRAFT_SIZES if model.mask_token is None else PARALLEL_SIZES
        self.cache, self._most = CachedSequence(model, new_namespace()), max_tokens(model)
        self._size_read = size_read
        # Fewer if otherwise drafts had no room in the context.
        self._num_cached = max(min(CACHED, self._most - SIZES[-1]), 1)
        # By size: the first of three passes, and the faster one of the others.
        self._times: dict[int, list[tuple[float, float]]] = defaultdict(list)
        self._reads: list[float] = []

    def time(self, size: int) -> None:
        """Time three passes of a size: the first follows a change of size, the others do not.

        The faster one of the two counts, so that one disturbance does not. Sizes without room in
        context or memory are skipped.
        """
        if self._num_cached + size > self._most:
            return
        try:
            first, *others = [self._pass(size) for _ in range(3)]
        except CacheFullError:
            if size == 1:  # no curve is without it
                raise
            return
        self._times[size].append((first, min(others)))

    def read(self) -> None:
        """Time passes of a size behind a long text, whose content does not matter."""
        model, size = self._model, self._size_read
        if LONG + size > self._most:
            return
        slot = model.open(self._new_namespace())
        try:
            if not isinstance(slot, BlockTable) or slot.states is not None:
                return
            slot.append(LONG)
            model.write_kv(slot, model.read_kv(slot), LONG)  # or its memory would not be there
            seconds = []
            for _ in range(3):
                start = perf_counter()
                model.forward([Span(slot, probe_tokens(0, size), size, size)])
                seconds.append(perf_counter() - start)
                slot.rollback(LONG)
        except CacheFullError:
            return  # memory for short texts only
        finally:
            slot.free()
        self._reads.append(min(seconds[1:]))

    def curve(self, saved: float) -> PassCurve:
        """Medians, at the pace of the fastest pass over one token.

        Disturbances only lengthen passes, so of two the faster one counts, but minima of all make
        larger sizes look cheap. A change of size is the median difference of a pass after another
        size and the next ones.
        saved: seconds that a static shape saves.
        """
        static = self._model.static_shapes
        singles = [last for _, last in self._times[1]]
        pace = min(singles) / median_low(singles)
        pairs = [pair for n, times in self._times.items() if n not in static for pair in times[1:]]
        change = pace * median([first - last for first, last in pairs] or [0.0])
        seconds = {
            size: pace * median_low(last for _, last in times) + saved * (size in static)
            for size, times in sorted(self._times.items())
        }
        # One disturbed pair of few must not forbid changes: they take up to a one-token pass.
        change = min(max(change, 0.0), min(singles))
        curve = PassCurve(seconds, change, saved=saved, static=static)
        if not self._reads:
            return curve
        more = pace * median(self._reads) - curve.at(self._size_read)
        return replace(curve, per_read=max(more / (self._size_read * (LONG - CACHED)), 0.0))

    def _pass(self, size: int) -> float:
        tokens = probe_tokens(0, self._num_cached)
        if not self.cache.length:
            alone(self.cache.advance(tokens, num_rows=1))
        # All are draft tokens, so that a runner with state copies has one at this position.
        draft_tokens = probe_tokens(self._num_cached, self._num_cached + size)
        start = perf_counter()
        # A row for each forces them to be fed even if cached.
        alone(self.cache.advance(tokens, draft_tokens, size))
        return perf_counter() - start


class Measurement:
    """Times all sizes of passes of a main and a draft model.

    new_namespace: makes namespaces that share nothing; for encoder-decoder models, sources.
    """

    def __init__(
        self,
        main: Runner,
        draft: Runner | None,
        sweeps: int = SWEEPS,
        new_namespace: Callable[[], Hashable] = object,
    ) -> None:
        models = [main] if draft is None else [main, draft]
        self._models = [
            # A draft model that drafts token by token feeds one.
            PassTimes(model, new_namespace, 8 if model is main or model.mask_token else 1)
            for model in models
        ]
        self._sweeps = sweeps
        self._num_sweeps = 0
        self._num_needed = LEAST + sum(len(model.draft_sizes) + 1 for model in self._models[1:])

    def run(self, seconds: float, progress: Callable[[float], None] | None = None) -> None:
        """Measure for so long, and some sizes at least; the others are interpolated.

        progress: called with the elapsed fraction of the time, 0 to 1. Nothing else may use the
        models meanwhile. Raises `CacheFullError` if memory has no room for the shortest passes.
        """
        begin = perf_counter()
        try:
            for num_timed, turn in enumerate(self._all_turns()):
                spent = perf_counter() - begin
                if spent > seconds and num_timed >= self._num_needed:
                    return
                if progress is not None:
                    progress(min(spent / seconds, 1.0))
                turn()
        finally:
            for model in self._models:
                model.cache.discard()

    def curve(self, kept: CostCurve) -> CostCurve:
        """What was measured. kept: a curve that knows what static shapes save."""
        saved = (kept.main.saved, kept.draft.saved if kept.draft else 0.0)
        curves = [model.curve(each) for model, each in zip(self._models, saved, strict=False)]
        draft = curves[1] if len(curves) > 1 else None
        return CostCurve(curves[0], draft, max(self._num_sweeps, 1))

    def _all_turns(self) -> Iterator[Callable[[], None]]:
        """All sizes of all models, interleaved, so that drifts of speed affect all."""
        main, *drafts = self._models
        for sweep in range(self._sweeps):
            for draft in drafts:
                yield from (partial(draft.time, size) for size in draft.draft_sizes)
            for number, size in enumerate(FIRST_SWEEP if sweep == 0 else (*SIZES, *WIDE)):
                if number == LEAST - 1:
                    yield from (model.read for model in self._models)
                yield partial(main.time, size)
            self._num_sweeps = sweep + 1
