"""Chooses a replica for each request: that of its session, unless that one is busy."""

from collections import OrderedDict, defaultdict
from collections.abc import Hashable, Mapping
from hashlib import blake2b
from random import sample
from typing import Any

from ray.serve.request_router import PendingRequest, ReplicaID, RequestRouter, RunningReplica

from ov_specdec.cluster.remote import Work

CAPACITY = 100_000
"""Sessions that are remembered, in about 20 MB."""

BEGINNING = 256
"""Characters or ids of a prompt that is no conversation which tell its session."""


def session_of(work: Work) -> bytes | None:
    """A hash that is equal for the requests of one conversation, tenant and salt; None without one.

    It is that of `prompt_cache_key`, or else of the messages up to the first one of the user. So a
    common system prompt does not send all requests to one replica.
    """
    ask = work.ask
    if not ask.options.cache_prompt:
        return None
    prompt: Any = ask.prompts[0]
    begins: Hashable = ask.cache_key
    if begins is None and prompt and isinstance(prompt[0], Mapping):
        asked = [i for i, message in enumerate(prompt) if message.get("role") == "user"]
        begins = repr(prompt[: asked[0] + 1 if asked else None])
    elif begins is None and len(prompt) >= BEGINNING:
        begins = repr(prompt[:BEGINNING])
    if begins is None:
        return None
    named = repr((work.tenant, ask.options.cache_salt, ask.cache_key is None, begins))
    return blake2b(named.encode(), digest_size=16).digest()


class SessionRouter(RequestRouter):
    """Ray's router, with replicas ordered by session and load.

    Requests wait in their replica, which gives each tenant its share. Of replicas tried together,
    Ray takes the one with the fewest requests. This router counts the requests that it sent itself,
    because Ray's own figures are seconds old.
    """

    def initialize_state(self, **kwargs: Any) -> None:
        """Takes `request_router_kwargs`. batch_size: concurrent requests of a replica."""
        self._batch_size: int = kwargs["batch_size"]
        self._replica_of: OrderedDict[bytes, ReplicaID] = OrderedDict()
        # Sequences by replica and request: each choice of an answer is one.
        self._running: defaultdict[ReplicaID, dict[str, int]] = defaultdict(dict)

    async def choose_replicas(
        self,
        candidate_replicas: list[RunningReplica],
        pending_request: PendingRequest | None = None,
    ) -> list[list[RunningReplica]]:
        """The replicas, best first: that of the session unless it is full, then by load."""
        home: ReplicaID | None = None
        if pending_request is not None:
            if (work := _work_of(pending_request)) and (session := session_of(work)):
                home = self._replica_of.get(session)
            # All of them were tried: wait before the next attempt.
            pending_request.routing_context.should_backoff = True
        ranks: defaultdict[int, list[RunningReplica]] = defaultdict(list)
        # Ray takes the first of equals: shuffle, so that idle replicas share the load.
        for replica in sample(candidate_replicas, len(candidate_replicas)):
            num_running = sum(self._running[replica.replica_id].values())
            is_home = replica.replica_id == home and num_running < self._batch_size
            ranks[-1 if is_home else num_running].append(replica)
        return [ranks[each] for each in sorted(ranks)]

    def on_request_routed(
        self, pending_request: PendingRequest, replica_id: ReplicaID, result: Any
    ) -> None:
        """Count a request that a replica took."""
        super().on_request_routed(pending_request, replica_id, result)
        if work := _work_of(pending_request):
            request_id = pending_request.metadata.internal_request_id
            self._running[replica_id][request_id] = work.ask.num_choices
            if session := session_of(work):
                self._replica_of[session] = replica_id
                self._replica_of.move_to_end(session)
                if len(self._replica_of) > CAPACITY:
                    self._replica_of.popitem(last=False)

    def on_request_completed(self, replica_id: ReplicaID, internal_request_id: str) -> None:
        """Discount a request that ended or was rejected."""
        super().on_request_completed(replica_id, internal_request_id)
        self._running[replica_id].pop(internal_request_id, None)

    def update_replicas(self, replicas: list[RunningReplica]) -> None:
        """Follow changes of the set of replicas."""
        super().update_replicas(replicas)
        for gone in self._running.keys() - {replica.replica_id for replica in replicas}:
            del self._running[gone]


def _work_of(request: PendingRequest) -> Work | None:
    """The work of a request; None for calls of another kind."""
    work = request.args[0] if request.args else None
    return work if isinstance(work, Work) else None
