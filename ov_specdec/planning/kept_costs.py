"""`KeptCosts`: learned costs that a file keeps, and passes that show what use has not shown."""

from collections.abc import Callable, Generator, Hashable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from time import perf_counter

from ov_specdec.errors import CacheFullError
from ov_specdec.files import keep_section, read_section
from ov_specdec.options.model import require
from ov_specdec.planning.costs import NOMINAL, CostCurve, Progress, Role
from ov_specdec.planning.learned_costs import LearnedCosts
from ov_specdec.results.stats import PassStats
from ov_specdec.runner.base import Runner
from ov_specdec.runner.cached_sequence import CachedSequence, Passes, alone, max_tokens
from ov_specdec.runner.probe import probe_tokens

MAIN_SIZES = (1, 8, 1, 4, 8, 2, 16, 3, 6, 12)
"""Sizes of the main model's passes, the most important first. What a change costs is known from
those that come again."""

DRAFT_SIZES = (1, 2, 1, 2, 16)
"""Of a draft model: a step, one that also feeds the last accepted draft token, and prefill."""

PARALLEL_SIZES = (8, 16, 8, 16, 1)
"""Of a draft model that drafts all tokens in one pass."""

REPEATED, IN_A_ROW = 2, 3
"""Passes of each size, and of each model's turn: turns begin with new sizes and with repeated ones,
so that what a change of size takes is told from what the return to a draft model does."""

CACHED = 16
"""Cached tokens of the passes."""

LARGEST_ROOM = CACHED + max(MAIN_SIZES)
"""Tokens of a sequence that has room for all of the passes."""

MEASURING_SECONDS = 2.0
"""Maximum time of `prepare`, unless another is given."""


class KeptCosts(LearnedCosts):
    """The costs of a pair of models on this machine. Implements `IdleWork`.

    path: the file that keeps them; None: no file. new_namespace: makes namespaces that share
    nothing; for encoder-decoder models, sources.
    """

    def __init__(
        self,
        main: Runner,
        draft: Runner | None,
        path: Path | None,
        *,
        new_namespace: Callable[[], Hashable] = object,
        learns_prompts: bool = True,
    ) -> None:
        curve = read_curve(path) or NOMINAL
        curve = replace(curve, draft=None if draft is None else curve.draft or NOMINAL.draft)
        super().__init__(curve, learns_prompts=learns_prompts)
        self._models: dict[Role, Runner] = {"main": main}
        if draft is not None:
            self._models["draft"] = draft
        self._path, self._new_namespace = path, new_namespace

    @property
    def is_pending(self) -> bool:
        """Whether passes are to be run that show what use has not shown."""
        return not self.curve.is_measured

    def prepare(self, progress: Progress | None = None, seconds: float | None = None) -> None:
        """Run passes of all sizes, unless a file has their costs. seconds: in any case."""
        if seconds is not None:
            require("seconds", seconds, float, gt=0)
        elif not self.is_pending:
            return
        begin, most, known = perf_counter(), seconds or MEASURING_SECONDS, -1
        spent = 0.0
        while spent < most and known < self._num_learned and (seconds or self.is_pending):
            known = self._num_learned
            for _ in self.passes():
                spent = perf_counter() - begin
                if progress is not None:
                    progress(min(spent / most, 1.0))
                if spent > most:
                    break
            spent = perf_counter() - begin
        if progress is not None:
            progress(1.0)
        self.keep()

    def passes(self) -> Generator[None, None, None]:
        """Run passes of all sizes, one at each `next`, those of both models in turn.

        Models must not be in use. If memory has no room for some, use shows what they cost.
        """
        runs = [self._passes(*model) for model in self._models.items()]
        for run in runs * (len(MAIN_SIZES) + 1):
            yield from islice(run, IN_A_ROW)
        self.curve = replace(self.curve, is_measured=True)
        self.keep()

    def _passes(self, role: Role, model: Runner) -> Generator[None, None, None]:
        """Passes of a model behind a short text, as far as context and memory have room."""
        draft_sizes = DRAFT_SIZES if model.mask_token is None else PARALLEL_SIZES
        sizes = MAIN_SIZES if role == "main" else draft_sizes
        most = max_tokens(model)
        # Fewer if otherwise drafts had no room in the context.
        num_cached = max(min(CACHED, most - max(sizes)), 1)
        tokens, cache = probe_tokens(0, num_cached), CachedSequence(model, self._new_namespace())
        try:
            self._time(cache.advance(tokens, num_rows=1), role, num_cached, 0, num_cached)
            for size in [size for size in sizes if num_cached + size <= most]:
                # All are draft tokens, so that a runner with state copies has one there.
                drafted = probe_tokens(num_cached, num_cached + size)
                for _ in range(REPEATED):
                    # A row for each forces them to be fed even if cached.
                    self._time(cache.advance(tokens, drafted, size), role, size, size * num_cached)
                    yield
        except CacheFullError:
            return
        finally:
            cache.discard()

    def _time(
        self, steps: Passes[object], role: Role, size: int, num_read: int, num_prefill: int = 0
    ) -> None:
        """Run a pass, and learn what it took."""
        start = perf_counter()
        alone(steps)
        done = PassStats(size, num_read, num_prefill, perf_counter() - start)
        self.learn(role, [done], self._models[role].static_shapes)

    def keep(self) -> None:
        """Write the file, if there is anything new; warns if the folder cannot be written."""
        if self.is_learned:
            keep_section(self._path, "costs", self.curve)


def read_curve(path: Path | None) -> CostCurve | None:
    """The curve in a file; None if there is no valid one."""
    return read_section(path, "costs", CostCurve)
