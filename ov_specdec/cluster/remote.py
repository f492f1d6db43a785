"""The engine of an ingress: replicas in other processes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any

from prometheus_client import Metric
from ray.exceptions import RayActorError
from ray.serve.exceptions import RayServeException
from ray.serve.handle import DeploymentHandle

from ov_specdec.openai import ApiError, Ask
from ov_specdec.results.chunks import Chunk
from ov_specdec.results.stats import BatchInvariance
from ov_specdec.server.stream import Stream
from ov_specdec.text.tokenizer import Tokenizer

ATTEMPTS = 3
"""Attempts of a request if replicas are lost before its first token."""

CONTROL_TIMEOUT = 5.0
"""Timeout of a replica's metrics and health in seconds: below that of Prometheus."""


@dataclass(frozen=True)
class Work:
    """A request for a replica. tenant: namespace of its cached prefixes."""

    ask: Ask
    tenant: str | None


@dataclass(frozen=True)
class RemoteEngine:
    """Implements `EngineClient`. replicas: where the generations run.

    tokenizer, max_length, batch_invariant: of one replica; all are on machines of one kind.
    """

    replicas: DeploymentHandle[Any]
    tokenizer: Tokenizer
    max_length: int
    batch_invariant: BatchInvariance

    @asynccontextmanager
    async def running(
        self, ask: Ask, tenant: str | None, stream: Stream[Chunk]
    ) -> AsyncIterator[None]:
        """See `EngineClient`."""
        reading = asyncio.create_task(self._read(Work(ask, tenant), stream))
        try:
            yield
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def check_health(self) -> None:
        """Raise `ApiError` unless a replica makes progress. Ray replaces those that do not."""
        if not await self._ask_all("check_health"):
            raise ApiError(503, "no replica makes progress", code="engine_stalled")

    async def collect_metrics(self) -> list[Metric]:
        """The metrics of all replicas."""
        return list(chain.from_iterable(await self._ask_all("collect_metrics")))

    def close(self) -> None:
        """Does nothing: Ray ends the replicas."""

    async def _read(self, work: Work, stream: Stream[Chunk]) -> None:
        """Fill the stream from a replica; retry on another one if it is lost before a token."""
        try:
            for _ in range(ATTEMPTS):
                if await self._try(work, stream):
                    return
            raise _lost()
        except Exception as error:
            stream.fail(error)

    async def _try(self, work: Work, stream: Stream[Chunk]) -> bool:
        """Whether a replica filled the stream; False if it was lost before the first token."""
        has_begun = False
        streaming: Any = self.replicas.options(stream=True)
        response = streaming.generate.remote(work)
        try:
            async for chunks in response:
                if isinstance(chunks, ApiError):
                    raise chunks
                stream.admit()
                has_begun = has_begun or bool(chunks)
                for index, chunk in chunks:
                    stream.receiver(index)([chunk])
        except RayActorError as error:
            if has_begun:
                raise _lost() from error
            return False
        finally:
            response.cancel()
        for _ in range(work.ask.num_choices):
            stream.end(None)
        return True

    async def _ask_all(self, method: str) -> list[Any]:
        """The answers of the replicas that give one."""
        try:
            answers = await self.replicas.broadcast(method).results_async(
                timeout_s=CONTROL_TIMEOUT, return_exceptions=True
            )
        except (RayServeException, TimeoutError):
            return []
        return [answer for answer in answers if not isinstance(answer, BaseException)]


def _lost() -> ApiError:
    return ApiError(503, "the replica that ran this request is gone", code="replica_lost")
