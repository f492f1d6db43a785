"""Metrics of requests at their arrival, for any engine."""

from time import monotonic

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from ov_specdec.server.access import CLIENT_LEFT, Record
from ov_specdec.server.metrics import FIRST_BUCKETS, PREFIX, REQUEST_BUCKETS
from ov_specdec.server.queue import Queue

REASONS = {CLIENT_LEFT: "abort", 504: "timeout"}
"""Reasons of failed requests, by status; otherwise "error"."""


class RequestMetrics:
    """Waiting and failed requests, and their times. model_name: label of all."""

    def __init__(self, model_name: str) -> None:
        self.registry = CollectorRegistry()
        self._model_name = model_name
        self._waiting = Gauge(
            f"{PREFIX}num_requests_waiting",
            "Requests in the queue.",
            ("model_name",),
            registry=self.registry,
        ).labels(model_name)
        self._failures = Counter(
            f"{PREFIX}request_failure",
            "Failed requests, by reason, error code and HTTP status.",
            ("model_name", "finished_reason", "error", "status"),
            registry=self.registry,
        )
        self.queue_time = self._histogram(
            "request_queue_time_seconds", "From its checks to its admission.", REQUEST_BUCKETS
        )
        self.to_first = self._histogram(
            "time_to_first_token_seconds", "From arrival to the first token.", FIRST_BUCKETS
        )
        self.whole = self._histogram(
            "e2e_request_latency_seconds", "From arrival to the last token.", REQUEST_BUCKETS
        )

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(
            f"{PREFIX}{name}", text, ("model_name",), buckets=buckets, registry=self.registry
        ).labels(self._model_name)

    def watch(self, queue: Queue) -> None:
        """Count waiting requests of this queue."""
        self._waiting.set_function(lambda: queue.num_waiting)

    def failed(self, record: Record) -> None:
        """Count a failed request."""
        reason, status = REASONS.get(record.status, "error"), str(record.status)
        self._failures.labels(self._model_name, reason, record.code or "", status).inc()


class Clock:
    """Measures the times of one request from its arrival, by `time.monotonic`."""

    def __init__(self, metrics: RequestMetrics, began: float) -> None:
        self._metrics = metrics
        self._began = began
        self._begun: set[int] = set()

    def note(self, index: int, *, has_tokens: bool, has_ended: bool) -> None:
        """Note a piece of a choice. has_ended: whether it is the last one, without an error."""
        seconds = monotonic() - self._began
        if has_tokens and index not in self._begun:
            self._begun.add(index)
            self._metrics.to_first.observe(seconds)
        if has_ended:
            self._metrics.whole.observe(seconds)
