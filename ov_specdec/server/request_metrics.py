"""What is counted of requests where they arrive, whatever runs them."""

from prometheus_client import CollectorRegistry, Counter, Gauge

from ov_specdec.server.access import CLIENT_LEFT, Record
from ov_specdec.server.metrics import PREFIX
from ov_specdec.server.queue import Queue

REASONS = {CLIENT_LEFT: "abort", 504: "timeout"}
"""What ended requests that failed, by status; else "error"."""


class RequestMetrics:
    """Requests that wait, and those that have failed. model_name: label of all of it."""

    def __init__(self, model_name: str) -> None:
        self.registry = CollectorRegistry()
        self._model_name = model_name
        self._waiting = Gauge(
            f"{PREFIX}num_requests_waiting",
            "Requests that wait for their turn.",
            ("model_name",),
            registry=self.registry,
        ).labels(model_name)
        self._failures = Counter(
            f"{PREFIX}request_failure",
            "Requests that have failed, by what ended them, code of the error, and HTTP status.",
            ("model_name", "finished_reason", "error", "status"),
            registry=self.registry,
        )

    def watch(self, queue: Queue) -> None:
        """Count what waits in this queue."""
        self._waiting.set_function(lambda: queue.num_waiting)

    def failed(self, record: Record) -> None:
        """Count a request that was not answered, or not to its end."""
        reason, status = REASONS.get(record.status, "error"), str(record.status)
        self._failures.labels(self._model_name, reason, record.code or "", status).inc()
