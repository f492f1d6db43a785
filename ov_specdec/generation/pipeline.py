"""`Pipeline`: what pipelines for text and for speech share, from their devices to their end."""

from collections.abc import Sequence
from dataclasses import replace

from typing_extensions import Self

from ov_specdec.errors import CLOSED, DeviceError, Option, OptionError, SessionError
from ov_specdec.files import expand_home
from ov_specdec.generation.text_generator import TextGenerator
from ov_specdec.models.compile import LoadedModel
from ov_specdec.models.devices import NOT_PAGED, find_device
from ov_specdec.models.runtime_config import RuntimeConfig
from ov_specdec.planning.costs import CostCurve, Progress


class Pipeline:
    """Loaded models and the generator that runs on them, until `close`, or the end of `with`."""

    _generator: TextGenerator | None  # None once the pipeline is closed

    @property
    def main(self) -> LoadedModel:
        """The main model. Raises `SessionError` once the pipeline is closed."""
        return self._open_generator().models[0]

    @property
    def draft(self) -> LoadedModel | None:
        """The draft model, if the drafter has one."""
        return next(iter(self._open_generator().models[1:]), None)

    @property
    def costs(self) -> CostCurve:
        """The cost curve of passes; with 0 sweeps it is the nominal one.

        Raises `SessionError` once the pipeline is closed.
        """
        return self._open_generator().learned.costs.curve

    def prepare(
        self, progress: Progress | None = None, *, seconds: float | None = None
    ) -> CostCurve:
        """Measure the cost of passes and compile static shapes now, instead of during use.

        The measurement takes two seconds, or 5 % of the loading time, unless the user's cache
        folder has it from an earlier process. Each static shape takes about as long as loading.
        progress: called with the fraction done, first of the one and then of the other. seconds:
        measure in any case, for this time; above 0. Raises `OptionError`, and `SessionError` while
        a generation is running.
        """
        self.measure_costs(progress, seconds=seconds)
        loop = self._open_generator().loop
        with loop.alone():
            for shapes in loop.engine.shapes.values():
                shapes.complete(progress)
        return self.costs

    def measure_costs(
        self, progress: Progress | None = None, *, seconds: float | None = None
    ) -> CostCurve:
        """The first part of `prepare`: no static shapes are compiled."""
        generator = self._open_generator()
        with generator.loop.alone():
            generator.learned.costs.prepare(progress, seconds)
            return generator.learned.costs.curve

    def close(self) -> None:
        """Free the models. Running generations end within one pass."""
        if self._generator is not None:
            self._generator.close()
        self._generator = None

    def _open_generator(self) -> TextGenerator:
        if self._generator is None:
            raise SessionError(CLOSED)
        return self._generator

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def check_devices(configs: Sequence[RuntimeConfig]) -> None:
    """Refuse, before models are read, settings that their devices do not support.

    configs: the main model's first. Raises `DeviceError` and `OptionError`.
    """
    main = configs[0]
    if main.cache_dir is not None:  # OpenVINO would fail later, with a vague message
        try:
            expand_home(main.cache_dir).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OptionError(
                Option("cache_dir", str(main.cache_dir)),
                f" cannot be made ({error.strerror}): give another folder",
            ) from error
    encoders = [replace(c, device=c.encoder_device, kv="auto") for c in configs if c.encoder_device]
    devices = []
    for config in (*configs, *encoders):
        devices.append(device := find_device(config.device))
        config.properties_for(device)
        if config.kv == "paged" and not device.takes_paged:
            raise DeviceError(f"{NOT_PAGED} {device.name}: leave out ", Option("kv", "paged"))
    device = devices[0]
    if not device.is_cpu and main.static_sizes:
        raise OptionError(
            Option("static_shapes", main.static_sizes),
            f" cannot be used on {device.name}, which does not run a paged KV cache with static "
            "shapes: leave it out",
        )
    if main.num_threads is not None and not any(own.is_cpu for own in devices):
        raise OptionError(
            Option("num_threads", main.num_threads),
            f" has no effect on {device.name}: leave it out, or run a model on CPU",
        )
