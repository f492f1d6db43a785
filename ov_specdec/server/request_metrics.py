"""What is counted of requests where they arrive, whatever runs them."""

from time import monotonic

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from ov_specdec.server.access import CLIENT_LEFT, Record
from ov_specdec.server.metrics import FIRST_BUCKETS, PREFIX, REQUEST_BUCKETS
from ov_specdec.server.queue import Queue

REASONS = {CLIENT_LEFT: "abort", 504: "timeout"}
"""What ended requests that failed, by status; else "error"."""


class RequestMetrics:
    """Requests that wait or have failed, and their times. model_name: label of all of it."""

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
        self.queue_time = self._histogram(
            "request_queue_time_seconds", "From when it was read to its turn.", REQUEST_BUCKETS
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
        """Count what waits in this queue."""
        self._waiting.set_function(lambda: queue.num_waiting)

    def failed(self, record: Record) -> None:
        """Count a request that was not answered, or not to its end."""
        reason, status = REASONS.get(record.status, "error"), str(record.status)
        self._failures.labels(self._model_name, reason, record.code or "", status).inc()


class Clock:
    """Takes the times of one request from its arrival, by `time.monotonic`."""

    def __init__(self, metrics: RequestMetrics, began: float) -> None:
        self._metrics = metrics
        self._began = began
        self._begun: set[int] = set()

    def note(self, index: int, *, has_tokens: bool, has_ended: bool) -> None:
        """A piece of one of its choices has come. has_ended: it was the last, and ended well."""
        seconds = monotonic() - self._began
        if has_tokens and index not in self._begun:
            self._begun.add(index)
            self._metrics.to_first.observe(seconds)
        if has_ended:
            self._metrics.whole.observe(seconds)
