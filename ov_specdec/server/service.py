"""`Service`: admits requests of the routes, and passes them to the engine."""

from contextlib import AbstractContextManager
from time import monotonic
from typing import Any
from weakref import WeakSet

from ov_specdec.api.body import UnknownFields
from ov_specdec.api.dialect import Served
from ov_specdec.api.errors import ApiError
from ov_specdec.dialects import INPUTS
from ov_specdec.server.engine import EngineClient, InputKind
from ov_specdec.server.limits import RETRY_AFTER, Arrivals, Grow, Slots
from ov_specdec.server.metrics import Metrics, RequestMetrics, export
from ov_specdec.server.settings import Settings
from ov_specdec.server.stream import Stream


class Service:
    """One engine, shared by all requests; `served` is None while it loads."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.served: EngineClient | None = None
        self.slots, self.arrivals = Slots(0), Arrivals(0)
        self.metrics = RequestMetrics(settings.model_name)
        self.unknown = UnknownFields(settings.strict_fields)
        self.streams = WeakSet[Stream[Any]]()
        """Of the requests that run."""
        self.drained_by: float | None = None
        """When running requests have to end, once the server stops, by `time.monotonic`."""

    def take(self, engine: EngineClient) -> None:
        """Serve with this engine from now on."""
        self.served = engine
        most = engine.max_running + self.settings.max_queue
        self.slots, self.arrivals = Slots(most), Arrivals(most)

    def close(self) -> None:
        """Free the models."""
        if self.served is not None:
            self.served.close()

    @property
    def engine(self) -> EngineClient:
        """What is served; `ApiError` while it loads."""
        if self.served is None:
            raise ApiError(503, "the models are loading", code="loading", retry_after=RETRY_AFTER)
        return self.served

    @property
    def model(self) -> Served:
        """The model that is served; `ApiError` while it loads."""
        return self.engine.model

    def check_input(self, needed: InputKind) -> None:
        """Refuse a request for which another kind of model is needed."""
        if (taken := self.engine.input_kind) != needed:
            message = f"the model that is served takes {taken}: use {INPUTS[taken]}"
            raise ApiError(400, message, code="wrong_endpoint")

    async def check_health(self) -> None:
        """Raise `ApiError` unless the server accepts requests and the engine makes progress."""
        engine = self.engine
        if self.drained_by is not None:
            raise _draining()
        await engine.check_health()

    async def export_metrics(self) -> bytes:
        """The metrics for Prometheus; all are 0 while models load."""
        if self.served is None:
            found = [*Metrics(self.settings.model_name).registry.collect()]
        else:
            found = await self.served.collect_metrics()
        return export([*self.metrics.registry.collect(), *found])

    def slot(self, tenant: str | None) -> AbstractContextManager[Grow]:
        """A slot for a request, once it is entered; `ApiError` if there is none."""
        if self.drained_by is not None:
            raise _draining()
        _ = self.engine  # is loaded
        return self.slots.entered(tenant)

    def drain(self) -> bool:
        """Reject new requests; whether running ones have ended, or do now as their time is up."""
        now = monotonic()
        if self.drained_by is None:
            self.drained_by = now + self.settings.shutdown_timeout
        if now >= self.drained_by:
            for stream in self.streams:
                stream.fail(_draining())
        return now >= self.drained_by or not self.slots.taken.total()


def _draining() -> ApiError:
    return ApiError(503, "the server is shutting down", code="draining")
