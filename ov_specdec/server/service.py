"""`Service`: admits requests of the routes, and passes them to the engine."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from time import monotonic, time
from typing import Any
from weakref import WeakSet

from ov_specdec.errors import shorten
from ov_specdec.openai.body import UnknownFields
from ov_specdec.openai.errors import ApiError, Json, invalid
from ov_specdec.server.engine import EngineClient, Takes
from ov_specdec.server.metrics import Metrics, RequestMetrics, export
from ov_specdec.server.settings import Settings
from ov_specdec.server.stream import Stream

RETRY_AFTER = 1
"""Retry-After in seconds while the queue is full: about the time of an answer."""

PATHS: Mapping[Takes, str] = {"text": "/v1/completions", "recordings": "/v1/audio/transcriptions"}

Grow = Callable[[int, int], None]
"""Takes a slot for each choice of a request: of how many, and of those of each prompt."""


class Slots:
    """Bounds the generations that run or wait; more are rejected with 429.

    A key that has none gets a slot for a request even if all are taken, so no key shuts out others.
    Not thread-safe: for the event loop only.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.taken: Counter[str | None] = Counter()

    @contextmanager
    def entered(self, key: str | None) -> Iterator[Grow]:
        """Take a slot before a request is read; `ApiError` if there is none. key: of the client."""
        size = 0

        def grow(wanted: int, n: int) -> None:
            nonlocal size
            if wanted > self.most:
                param, what = ("n", "choices") if n > 1 else ("prompt", "prompts")
                room = f"the {self.most} slots of the queue"
                raise invalid(param, f"{wanted} {what} exceed {room}: send fewer")
            num_taken = self.taken.total()
            if num_taken + wanted - size > self.most and self.taken[key] > size:
                raise ApiError(
                    429,
                    f"{num_taken} requests are running or waiting: try again later",
                    code="queue_full",
                    retry_after=RETRY_AFTER,
                )
            self.taken[key] += wanted - size
            size = wanted

        grow(1, 1)
        try:
            yield grow
        finally:
            self.taken[key] -= size


class Service:
    """One engine, shared by all requests; `served` is None while it loads."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.started = int(time())
        self.served: EngineClient | None = None
        self.slots = Slots(0)
        self.metrics = RequestMetrics(settings.model_name)
        self.unknown = UnknownFields(settings.strict_fields)
        self.streams = WeakSet[Stream[Any]]()
        """Of the requests that run."""
        self.drained_by: float | None = None
        """When running requests have to end, once the server stops, by `time.monotonic`."""

    def take(self, engine: EngineClient) -> None:
        """Serve with this engine from now on."""
        self.served = engine
        self.slots = Slots(engine.max_running + self.settings.max_queue)

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

    def check_takes(self, given: Takes) -> None:
        """Refuse a request for which another kind of model is needed."""
        if (taken := self.engine.takes) != given:
            message = f"the model that is served takes {taken}: use {PATHS[taken]}"
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

    def check_model(self, name: str | None) -> None:
        """Refuse a model that is not served; None is accepted."""
        if name not in (None, *self.settings.served_model_name):
            raise ApiError(
                404,
                f"the model {shorten(name)} is not served here: it is '{self.settings.model_name}'",
                "model",
                "model_not_found",
            )

    def entered(self, tenant: str | None) -> AbstractContextManager[Grow]:
        """Take a slot for a request, before it is read."""
        if self.drained_by is not None:
            raise _draining()
        _ = self.engine  # is loaded
        return self.slots.entered(tenant)

    async def turn(self, stream: Stream[Any], deadline: float) -> None:
        """Wait until a request runs; `asyncio.TimeoutError` at its deadline.

        Raises `ApiError` if it waits too long.
        """
        came, most = monotonic(), self.settings.queue_timeout
        left = min(most, deadline - came)
        try:
            await asyncio.wait_for(stream.admitted.wait(), left)
        except asyncio.TimeoutError as error:
            if left < most:
                raise
            raise ApiError(
                503,
                f"the request waited {most:g} s in the queue: try again later",
                code="queue_timeout",
                retry_after=RETRY_AFTER,
            ) from error
        self.metrics["request_queue_time_seconds"].observe(monotonic() - came)

    def describe_model(self, name: str) -> Json:
        """The model by one of its names, in OpenAI's shape."""
        engine = self.engine
        return {
            "id": name,
            "object": "model",
            "created": self.started,
            "owned_by": "ov-specdec",
            "max_model_len": engine.max_length,
            "chat_template": engine.tokenizer.chat_template is not None,
            "batch_invariant": engine.batch_invariant.as_dict(),
        }

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
