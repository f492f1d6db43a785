"""Replicas: each an engine in a process of its own; and how the ingress chooses and reads one."""

import asyncio
from collections import OrderedDict, defaultdict
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from random import sample
from typing import Any

from prometheus_client import Metric
from ray import serve
from ray.exceptions import RayActorError
from ray.serve.exceptions import RayServeException
from ray.serve.handle import DeploymentHandle
from ray.serve.request_router import PendingRequest, ReplicaID, RequestRouter, RunningReplica

from ov_specdec.api.body import GenerationBody
from ov_specdec.api.dialect import Served
from ov_specdec.api.errors import ApiError, from_exception
from ov_specdec.cluster.cpus import claim, pin, read_nodes
from ov_specdec.pipeline import SpeculativePipeline
from ov_specdec.results.chunks import Chunk
from ov_specdec.server.engine import InputKind, LocalEngine
from ov_specdec.server.settings import Settings
from ov_specdec.server.stream import Stream

SESSION_PREFIX = 256
"""Characters or ids of a prompt that is no conversation which tell its session."""


class Replica(LocalEngine):
    """An engine on CPUs of its own. Ray replaces it when `check_health` raises."""

    def __init__(self, arguments: Mapping[str, Any], settings: Settings, num_cpus: int) -> None:
        cpus, self._claim = claim(read_nodes(), num_cpus)
        pin(cpus)
        pipeline = SpeculativePipeline(**arguments)
        pipeline.check_batch_invariant()
        super().__init__(pipeline, settings, serve.get_replica_context().replica_tag)

    async def generate(
        self, request: GenerationBody, tenant: str | None
    ) -> AsyncIterator[list[tuple[int, Chunk]] | ApiError]:
        """Chunks with their choice, first none when it runs, or an `ApiError`, while it is read."""
        stream = Stream[Chunk](request.num_choices)
        try:
            async with self.running(request, tenant, stream):
                await stream.admitted.wait()
                yield []
                while chunks := await stream.next():
                    yield chunks
        except Exception as error:
            if (failure := from_exception(error, "", request.names)).status == 500:
                raise
            yield failure

    async def describe(self) -> Served:
        """What is served, for a `RemoteEngine`."""
        return self.model


@dataclass
class RemoteEngine:
    """Implements `EngineClient` with replicas, which all are as the one that described itself."""

    replicas: DeploymentHandle[Any]
    max_running: int
    model: Served
    input_kind: InputKind = "text"

    @asynccontextmanager
    async def running(
        self, request: GenerationBody, tenant: str | None, stream: Stream[Chunk]
    ) -> AsyncIterator[None]:
        """See `EngineClient`."""
        reading = asyncio.create_task(self._read(request, tenant, stream, 3))
        try:
            yield
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def check_health(self) -> None:
        """Raise `ApiError` unless a replica makes progress. Ray replaces those that do not."""
        if not await self._broadcast("check_health"):
            raise ApiError(503, "no replica makes progress", code="engine_stalled")

    async def collect_metrics(self) -> list[Metric]:
        """The metrics of all replicas."""
        return [each for own in await self._broadcast("collect_metrics") for each in own]

    def close(self) -> None:
        """Does nothing: Ray ends the replicas."""

    async def _read(
        self, request: GenerationBody, tenant: str | None, stream: Stream[Chunk], tries: int
    ) -> None:
        """Fill the stream from a replica, or from another one if it is lost before a token."""
        try:
            response: Any = self.replicas.options(stream=True).generate.remote(request, tenant)
            with ExitStack() as end:
                end.callback(response.cancel)
                async for chunks in response:
                    if isinstance(chunks, ApiError):
                        raise chunks
                    stream.admit()
                    for index, chunk in chunks:
                        tries = 1
                        stream.put(index, [chunk])
            for _ in range(request.num_choices):
                stream.end(None)
        except RayActorError:
            if tries > 1:
                return await self._read(request, tenant, stream, tries - 1)
            lost = "the replica that ran this request is gone"
            stream.fail(ApiError(503, lost, code="replica_lost"))
        except Exception as error:
            stream.fail(error)

    async def _broadcast(self, method: str) -> list[Any]:
        """The answers of the replicas that give one within less than Prometheus's timeout."""
        try:
            answers = await self.replicas.broadcast(method).results_async(
                timeout_s=5, return_exceptions=True
            )
        except (RayServeException, TimeoutError):
            return []
        return [answer for answer in answers if not isinstance(answer, BaseException)]


def session_of(request: GenerationBody, tenant: str | None) -> int | None:
    """A hash that is equal for the requests of one conversation, tenant and salt; None without one.

    It is of its `session`, or messages up to the user's first: not of a system prompt alone.
    """
    prompt: Any = request.prompts[0]
    if request.session is not None:
        begins = ""
    elif prompt and isinstance(prompt[0], Mapping):
        roles = [message.get("role") for message in prompt]
        begins = repr(prompt[: roles.index("user") + 1] if "user" in roles else prompt)
    elif len(prompt) >= SESSION_PREFIX:
        begins = repr(prompt[:SESSION_PREFIX])
    else:
        return None
    return hash((tenant, request.options.cache_salt, request.session, begins))


class SessionRouter(RequestRouter):
    """Ray's router, with replicas ordered by session and by the requests that it sent them.

    Ray's own counts are seconds old. Requests wait in their replica, which gives tenants a share.
    """

    def initialize_state(self, **kwargs: Any) -> None:
        """Takes `request_router_kwargs`. batch_size: concurrent sequences of a replica."""
        self._batch_size: int = kwargs["batch_size"]
        self._replica_of: OrderedDict[int | None, ReplicaID] = OrderedDict()
        # Sequences by replica and request: each choice of an answer is one.
        self._running: defaultdict[ReplicaID, dict[str, int]] = defaultdict(dict)

    async def choose_replicas(
        self,
        candidate_replicas: list[RunningReplica],
        pending_request: PendingRequest | None = None,
    ) -> list[list[RunningReplica]]:
        """The replicas, best first: that of the session unless it is full, then by load."""
        home = None
        if pending_request:
            if pending_request.args:  # a generation
                home = self._replica_of.get(session_of(*pending_request.args))
            # Wait before all of them are tried again.
            pending_request.routing_context.should_backoff = True
        load = {
            one.replica_id: sum(self._running[one.replica_id].values())
            for one in candidate_replicas
        }
        if home in load and load[home] < self._batch_size:
            load[home] = -1
        shuffled = sample(candidate_replicas, len(candidate_replicas))  # idle ones share the load
        return [[one] for one in sorted(shuffled, key=lambda one: load[one.replica_id])]

    def on_request_routed(
        self, pending_request: PendingRequest, replica_id: ReplicaID, result: Any
    ) -> None:
        """Count a request that a replica took, and remember the replica of its session."""
        super().on_request_routed(pending_request, replica_id, result)
        if pending_request.args:  # a generation
            request, tenant = pending_request.args
            request_id = pending_request.metadata.internal_request_id
            self._running[replica_id][request_id] = request.num_choices
            if (session := session_of(request, tenant)) is not None:
                self._replica_of[session] = replica_id
                self._replica_of.move_to_end(session)
                if len(self._replica_of) > 100_000:  # in about 20 MB
                    self._replica_of.popitem(last=False)

    def on_request_completed(self, replica_id: ReplicaID, internal_request_id: str) -> None:
        """Discount a request that ended, was rejected, or lost its replica."""
        super().on_request_completed(replica_id, internal_request_id)
        self._running[replica_id].pop(internal_request_id, None)
