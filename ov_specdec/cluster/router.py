"""Chooses a replica for each request: that of its session, unless that one is busy."""

from collections import OrderedDict, defaultdict
from collections.abc import Mapping
from random import sample
from typing import Any

from ray.serve.request_router import PendingRequest, ReplicaID, RequestRouter, RunningReplica

from ov_specdec.openai.requests import GenerationBody

SESSION_PREFIX = 256
"""Characters or ids of a prompt that is no conversation which tell its session."""


def session_of(ask: GenerationBody, tenant: str | None) -> int | None:
    """A hash that is equal for the requests of one conversation, tenant and salt; None without one.

    It is of `prompt_cache_key`, or messages up to the user's first: not of a system prompt alone.
    """
    prompt: Any = ask.prompts[0]
    if ask.prompt_cache_key is not None:
        begins = ""
    elif prompt and isinstance(prompt[0], Mapping):
        roles = [message.get("role") for message in prompt]
        begins = repr(prompt[: roles.index("user") + 1] if "user" in roles else prompt)
    elif len(prompt) >= SESSION_PREFIX:
        begins = repr(prompt[:SESSION_PREFIX])
    else:
        return None
    return hash((tenant, ask.options.cache_salt, ask.prompt_cache_key, begins))


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
            ask, tenant = pending_request.args
            request_id = pending_request.metadata.internal_request_id
            self._running[replica_id][request_id] = ask.num_choices
            if (session := session_of(ask, tenant)) is not None:
                self._replica_of[session] = replica_id
                self._replica_of.move_to_end(session)
                if len(self._replica_of) > 100_000:  # in about 20 MB
                    self._replica_of.popitem(last=False)

    def on_request_completed(self, replica_id: ReplicaID, internal_request_id: str) -> None:
        """Discount a request that ended, was rejected, or lost its replica."""
        super().on_request_completed(replica_id, internal_request_id)
        self._running[replica_id].pop(internal_request_id, None)
