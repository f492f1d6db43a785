"""Chooses a replica for each request: one with its prefix, unless that is busy."""

from collections import defaultdict
from collections.abc import Sequence
from random import sample
from typing import Any

from ray.serve.request_router import PendingRequest, ReplicaID, RequestRouter, RunningReplica

from ov_specdec.cluster.prefixes import Prefixes, preference
from ov_specdec.cluster.work import Work

WAITING_BATCHES = 1
"""Batches that wait in a replica besides the running one: the next step then fills a free place.
Otherwise it would stay empty until the router retries, after 0.5 s."""


class PrefixRouter(RequestRouter):
    """Ray's router, with replicas ordered by `preference`.

    Of replicas tried together, Ray takes the one with the fewest requests. This router counts the
    requests that it sent itself, because Ray's own figures are seconds old.
    """

    def initialize_state(self, **kwargs: Any) -> None:
        """Takes `request_router_kwargs`. batch_size: concurrent requests of a replica."""
        self._batch_size: int = kwargs["batch_size"]
        self._prefixes = Prefixes()
        # Sequences by replica and request: each choice of an answer is one.
        self._running: defaultdict[ReplicaID, dict[str, int]] = defaultdict(dict)

    async def choose_replicas(
        self,
        candidate_replicas: list[RunningReplica],
        pending_request: PendingRequest | None = None,
    ) -> list[list[RunningReplica]]:
        """The replicas with room, best first."""
        hashes: Sequence[bytes] = ()
        hint: bytes | None = None
        if pending_request is not None:
            if work := _work_of(pending_request):
                hashes, hint = work.prefixes, work.hint
            # All of them were tried: wait before the next attempt.
            pending_request.routing_context.should_backoff = True
        ranks: defaultdict[float, list[RunningReplica]] = defaultdict(list)
        # Ray takes the first of equals: shuffle, so that idle replicas share the load.
        for replica in sample(candidate_replicas, len(candidate_replicas)):
            num_running = sum(self._running[replica.replica_id].values())
            if num_running < self._batch_size * (1 + WAITING_BATCHES):
                num_known = self._prefixes.count(replica.replica_id, hashes)
                if hint and self._prefixes.count(replica.replica_id, [hint]):
                    num_known = len(hashes)
                rank = preference(num_known, len(hashes), num_running, self._batch_size)
                ranks[rank].append(replica)
        return [ranks[each] for each in sorted(ranks, reverse=True)]

    def on_request_routed(
        self, pending_request: PendingRequest, replica_id: ReplicaID, result: Any
    ) -> None:
        """Count a request that a replica took."""
        super().on_request_routed(pending_request, replica_id, result)
        if work := _work_of(pending_request):
            request_id = pending_request.metadata.internal_request_id
            self._running[replica_id][request_id] = work.ask.num_choices
            self._prefixes.remember(replica_id, [*filter(None, [work.hint]), *work.prefixes])

    def on_request_completed(self, replica_id: ReplicaID, internal_request_id: str) -> None:
        """Discount a request that ended or was rejected."""
        super().on_request_completed(replica_id, internal_request_id)
        self._running[replica_id].pop(internal_request_id, None)

    def update_replicas(self, replicas: list[RunningReplica]) -> None:
        """Follow changes of the set of replicas."""
        super().update_replicas(replicas)
        present = {replica.replica_id for replica in replicas}
        self._prefixes.keep(present)
        for gone in self._running.keys() - present:
            del self._running[gone]


def _work_of(request: PendingRequest) -> Work | None:
    """The work of a request; None for calls of another kind."""
    work = request.args[0] if request.args else None
    return work if isinstance(work, Work) else None
