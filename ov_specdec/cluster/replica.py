"""A replica: an engine in a process of its own, and the ingress's way to those of all replicas."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from prometheus_client import Metric
from ray import serve
from ray.exceptions import RayActorError
from ray.serve.exceptions import RayServeException
from ray.serve.handle import DeploymentHandle

from ov_specdec.cluster.cpus import claim, pin, read_nodes
from ov_specdec.openai.errors import ApiError, from_exception
from ov_specdec.openai.requests import GenerationBody
from ov_specdec.pipeline import SpeculativePipeline
from ov_specdec.results.chunks import Chunk
from ov_specdec.results.stats import BatchInvariance
from ov_specdec.server.engine import LocalEngine, Takes
from ov_specdec.server.settings import Settings
from ov_specdec.server.stream import Stream
from ov_specdec.text.tokenizer import Tokenizer


class Replica(LocalEngine):
    """An engine on CPUs of its own. Ray replaces it when `check_health` raises."""

    def __init__(self, arguments: Mapping[str, Any], settings: Settings, num_cpus: int) -> None:
        cpus, self._claim = claim(read_nodes(), num_cpus)
        pin(cpus)
        pipeline = SpeculativePipeline(**arguments)
        pipeline.check_batch_invariant()
        super().__init__(pipeline, settings, serve.get_replica_context().replica_tag)

    async def generate(
        self, ask: GenerationBody, tenant: str | None
    ) -> AsyncIterator[list[tuple[int, Chunk]] | ApiError]:
        """Chunks with their choice, first none when it runs, or an `ApiError`, while it is read."""
        stream = Stream[Chunk](ask.num_choices)
        try:
            async with self.running(ask, tenant, stream):
                await stream.admitted.wait()
                yield []
                while chunks := await stream.next():
                    yield chunks
        except Exception as error:
            if (failure := from_exception(error, "", ask.names)).status == 500:
                raise
            yield failure

    async def describe(self) -> tuple[Tokenizer, int, BatchInvariance]:
        """What a `RemoteEngine` begins with."""
        return self.tokenizer, self.max_length, self.batch_invariant


@dataclass
class RemoteEngine:
    """Implements `EngineClient` with replicas, which all are as the one that described itself."""

    replicas: DeploymentHandle[Any]
    tokenizer: Tokenizer
    max_length: int
    batch_invariant: BatchInvariance
    max_running: int
    takes: Takes = "text"

    @asynccontextmanager
    async def running(
        self, ask: GenerationBody, tenant: str | None, stream: Stream[Chunk]
    ) -> AsyncIterator[None]:
        """See `EngineClient`."""
        reading = asyncio.create_task(self._read(ask, tenant, stream, 3))
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
        return [each for own in await self._ask_all("collect_metrics") for each in own]

    def close(self) -> None:
        """Does nothing: Ray ends the replicas."""

    async def _read(
        self, ask: GenerationBody, tenant: str | None, stream: Stream[Chunk], tries: int
    ) -> None:
        """Fill the stream from a replica, or from another one if it is lost before a token."""
        try:
            response: Any = self.replicas.options(stream=True).generate.remote(ask, tenant)
            with ExitStack() as end:
                end.callback(response.cancel)
                async for chunks in response:
                    if isinstance(chunks, ApiError):
                        raise chunks
                    stream.admit()
                    for index, chunk in chunks:
                        tries = 1
                        stream.put(index, [chunk])
            for _ in range(ask.num_choices):
                stream.end(None)
        except RayActorError:
            if tries > 1:
                return await self._read(ask, tenant, stream, tries - 1)
            lost = "the replica that ran this request is gone"
            stream.fail(ApiError(503, lost, code="replica_lost"))
        except Exception as error:
            stream.fail(error)

    async def _ask_all(self, method: str) -> list[Any]:
        """The answers of the replicas that give one within less than Prometheus's timeout."""
        try:
            answers = await self.replicas.broadcast(method).results_async(
                timeout_s=5, return_exceptions=True
            )
        except (RayServeException, TimeoutError):
            return []
        return [answer for answer in answers if not isinstance(answer, BaseException)]
