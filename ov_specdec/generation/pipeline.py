"""`Pipeline`: what pipelines for text and for speech share, from loaded models to their end."""

from typing_extensions import Self

from ov_specdec.errors import CLOSED, SessionError
from ov_specdec.generation.text_generator import TextGenerator
from ov_specdec.models.compile import LoadedModel
from ov_specdec.planning.cost_source import KeptCosts
from ov_specdec.planning.costs import CostCurve, Progress


class Pipeline:
    """Loaded models and the generator that runs on them, until `close`, or the end of `with`."""

    # Main first, then the draft where there is one; empty once the pipeline is closed.
    _models: list[LoadedModel]
    _costs: KeptCosts | None
    _generator: TextGenerator | None

    @property
    def main(self) -> LoadedModel:
        """The main model. Raises `SessionError` once the pipeline is closed."""
        return self._open_models()[0]

    @property
    def draft(self) -> LoadedModel | None:
        """The draft model, if the drafter has one."""
        return self._models[1] if len(self._models) > 1 else None

    def prepare(
        self, progress: Progress | None = None, *, seconds: float | None = None
    ) -> CostCurve:
        """Measure the cost of passes: see `SpeculativePipeline.prepare`."""
        with self._open_generator().loop.alone():
            if self._costs is None:  # another thread may have closed the pipeline meanwhile
                raise SessionError(CLOSED)
            return self._costs.prepare(progress, seconds)

    def close(self) -> None:
        """Free the models. Running generations end within one pass."""
        if self._generator is not None:
            self._generator.loop.close()
            self._generator.grammars.close()
        self._generator = self._costs = None
        self._models = []

    def _open_models(self) -> list[LoadedModel]:
        if not self._models:  # another thread may close the pipeline at any time
            raise SessionError(CLOSED)
        return self._models

    def _open_generator(self) -> TextGenerator:
        if self._generator is None:
            raise SessionError(CLOSED)
        return self._generator

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
