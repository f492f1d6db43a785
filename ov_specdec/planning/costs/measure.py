"""Measures the cost of passes, interleaved and within a time budget."""

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from statistics import median
from time import perf_counter

from ov_specdec.errors import CacheFullError
from ov_specdec.invariance import SMALL_PASS, text
from ov_specdec.logits import Logits
from ov_specdec.planning.costs.curve import ROWS, SIZES, CostCurve, PassCurve
from ov_specdec.runner.base import Runner
from ov_specdec.runner.cached_sequence import CachedSequence, alone, forward

SWEEPS = 5
"""Sweeps over all sizes: of five, at least one is usually undisturbed."""

FIRST_SWEEP = (1, 8, 4, 2, 3, 1, 4, 16, 6, 12)
"""Order of sizes, the most important first; two of them twice, to measure a change of size.

If there is no time for all, passes are long, and a line through one and eight tokens predicts more
than a single pass over 16 that takes half of the time. The very first pass of a size is longer
than any other, so it does not show the cost of a change.
"""

WIDE = (32, 64)
"""Sizes for several sequences: measured after the others, if there is time.

The embedded main model takes 0.8 ms for each token up to 16, and 0.3 from there to 64.
"""

SEQUENCES = 8
"""Sequences of the pass that measures the cost of each."""

LEAST = 6
"""Measurements that every curve needs, however long they take: the draft's, and 1, 8, 4."""

DRAFT_SIZES = (16, 2, 1)
"""Passes of a draft model: prefill, one that also feeds the last accepted draft token, and a
step."""

Compare = Callable[[int, Logits, str], None]
"""Called with rows of logits of passes over `text`, their first position, and the pass's name."""


def no_comparison(place: int, logits: Logits, way: str) -> None:
    """Ignore rows of logits."""


class PassTimes:
    """Times of passes of one model, over its own sequence.

    saved: seconds that a static shape saves.
    """

    def __init__(
        self,
        model: Runner,
        new_namespace: Callable[[], Hashable],
        compare: Compare = no_comparison,
        saved: float = 0.0,
    ) -> None:
        self._saved = saved
        self._new_namespace = new_namespace
        self._compare = compare
        self._cache = CachedSequence(model, new_namespace())
        self._tokens = text(0, 1)
        # By cached tokens and size: the first of a few passes, and the last.
        self._times: dict[int, dict[int, list[tuple[float, float]]]] = defaultdict(dict)
        self._spreads: list[float] = []

    def has_room(self, num_cached: int) -> bool:
        """Whether passes of all sizes fit after `num_cached` tokens."""
        return num_cached + WIDE[-1] <= self._cache.runner.max_length

    def seconds_to_read(self, num_cached: int) -> float:
        """An upper bound of the seconds to prefill `num_cached` tokens."""
        return num_cached / SIZES[-1] * self.curve().at(SIZES[-1], ROWS[0])

    def read(self, num_cached: int) -> None:
        """Prefill `num_cached` tokens, of which the first timed pass feeds the last."""
        self._tokens += text(len(self._tokens), num_cached + 1)
        alone(self._cache.advance(self._tokens[:-1], num_rows=1))

    def time(self, size: int, row: int) -> None:
        """Time passes of a size: the first follows a change of size, the last does not.

        For one token it is the last of three, as a draft model's steps follow each other. Sizes
        without room in context or memory are skipped.
        """
        if len(self._tokens) + size - 1 > self._cache.runner.max_length:
            return
        try:
            first = self._pass(size)
            last = [self._pass(size) for _ in range(2 if size == 1 else 1)][-1]
        except CacheFullError:
            return
        self._times[row].setdefault(size, []).append((first, last))

    def spread(self, row: int) -> None:  # noqa: ARG002
        """Time a pass over one token of each of several sequences."""
        model = self._cache.runner
        if model.max_sequences is not None:
            return
        caches = [CachedSequence(model, self._new_namespace()) for _ in range(SEQUENCES)]
        try:
            for _ in range(2):  # the first follows a change of size
                steps = [cache.advance(text(0, 1)) for cache in caches]
                for waiting in steps:
                    next(waiting)
                start = perf_counter()
                forward(caches, [cache.span(1) for cache in caches])
                seconds = perf_counter() - start
                for step in steps:
                    self._compare(0, alone(step).logits, f"{SEQUENCES} sequences in a pass")
        except CacheFullError:
            return  # memory for only one sequence
        finally:
            for cache in caches:
                cache.discard()
        self._spreads.append(seconds)

    def curve(self) -> PassCurve:
        """The minimum of all times, because disturbances only lengthen passes.

        Medians were off by a factor of two when another program used the cores half of the time.
        """
        static = self._cache.runner.static_shapes
        changes = [
            min(first for first, _ in times[1:]) - min(last for _, last in times)
            for sizes in self._times.values()
            for size, times in sizes.items()
            if len(times) > 1 and size not in static
        ]
        rows = {
            row: {
                size: min(map(min, times)) + (self._saved if size in static else 0.0)
                for size, times in sorted(sizes.items())
            }
            for row, sizes in self._times.items()
        }
        change = max(median(changes), 0.0) if changes else 0.0
        curve = PassCurve(rows, change, saved=self._saved, static=static)
        if not self._spreads:
            return curve
        more = min(self._spreads) - curve.at(SEQUENCES, ROWS[0])
        return replace(curve, per_sequence=max(more / (SEQUENCES - 1), 0.0))

    def end(self) -> None:
        """Free the memory."""
        self._cache.discard()

    def _pass(self, size: int) -> float:
        place = len(self._tokens) - 1
        # All are draft tokens, so that a runner with state copies has one at this position.
        draft_tokens = [*self._tokens[place:], *text(place + 1, place + size)]
        start = perf_counter()
        # A wanted row for each forces them to be fed even if cached.
        done = alone(self._cache.advance(self._tokens[:place], draft_tokens, size))
        seconds = perf_counter() - start
        if place <= SMALL_PASS:  # beyond, the prefill may have been a larger pass
            self._compare(place, done.logits, f"a pass over {size} tokens")
        return seconds


TimePasses = Callable[[int], None]


def measure(
    main: Runner,
    draft: Runner | None,
    seconds: float,
    *,
    sweeps: int = SWEEPS,
    kept: CostCurve | None = None,
    progress: Callable[[float], None] | None = None,
    new_namespace: Callable[[], Hashable] = object,
    compare: Compare = no_comparison,
) -> CostCurve:
    """The cost curve of a main and a draft model, in about `seconds`; at least three sizes.

    Other sizes are interpolated. kept: an earlier measurement, whose missing sizes come first.
    progress: called with the elapsed fraction of the time, 0 to 1. new_namespace: makes namespaces
    that share nothing; for encoder-decoder models, sources. compare: called with the main model's
    rows. Nothing else may use the models meanwhile. Raises `CacheFullError` if memory has no room
    for the shortest passes.
    """
    known: Collection[int] = ()
    saved = draft_saved = 0.0
    if kept is not None:
        known = kept.main.seconds.get(ROWS[0], ()) if kept.sweeps else ()
        saved = kept.main.saved
        draft_saved = kept.draft.saved if kept.draft else 0.0
    models = [PassTimes(main, new_namespace, compare, saved)]
    if draft is not None:
        models.append(PassTimes(draft, new_namespace, saved=draft_saved))
    try:
        complete = _time_rows(models, seconds, sweeps, known, progress)
    finally:
        for model in models:
            model.end()
    curves = [model.curve() for model in models]
    return CostCurve(curves[0], curves[1] if len(curves) > 1 else None, complete)


def _time_rows(
    models: Sequence[PassTimes],
    seconds: float,
    sweeps: int,
    known: Collection[int],
    progress: Callable[[float], None] | None,
) -> int:
    """Time passes within the budget. Returns the number of complete sweeps over the first row."""
    begin, complete = perf_counter(), 1
    for row in ROWS[:2]:
        timed = models
        if row != ROWS[0]:
            timed = [model for model in models if model.has_room(row)]
            left = seconds - (perf_counter() - begin)
            reading = sum(model.seconds_to_read(row) for model in timed)
            if models[0] not in timed or reading > left / 2:
                break
        if not _read(timed, row):
            break
        for done, (sweep, turn) in enumerate(_turns(timed, sweeps, known)):
            complete = max(sweep, 1) if row == ROWS[0] else complete
            spent = perf_counter() - begin
            if spent > seconds and (done >= LEAST or row != ROWS[0]):
                break
            if progress is not None:
                progress(min(spent / seconds, 1.0))
            turn(row)
        else:
            complete = sweeps if row == ROWS[0] else complete
    return complete


def _read(models: Sequence[PassTimes], row: int) -> bool:
    """Prefill the tokens of a row in all models; False if memory has no room for it."""
    try:
        for model in models:
            model.read(row)
    except CacheFullError:
        if row == ROWS[0]:
            raise
        return False
    return True


def _turns(
    models: Sequence[PassTimes], sweeps: int, known: Collection[int]
) -> Iterator[tuple[int, TimePasses]]:
    """All sizes of all models, interleaved, so that drifts of the machine's speed affect all.

    Each comes with the index of its sweep.
    """
    main, *drafts = models
    # One token always comes first, as the reference for the machine's speed.
    first = FIRST_SWEEP[:1] + tuple(sorted(FIRST_SWEEP[1:], key=lambda size: size in known))
    for sweep in range(sweeps):
        for draft in drafts:
            if sweep > 0:
                yield sweep, draft.spread
            for size in DRAFT_SIZES:
                yield sweep, partial(draft.time, size)
        for size in first if sweep == 0 else (*SIZES, *WIDE):
            yield sweep, partial(main.time, size)
        if sweep > 0:
            yield sweep, main.spread
