"""Prometheus metrics, with vLLM's names after the prefix."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from time import monotonic

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Metric,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from ov_specdec.chunks import Chunk
from ov_specdec.engine.scheduler import Scheduler
from ov_specdec.runner.base import Runner
from ov_specdec.stats import GenerationStats

PREFIX = "ov_specdec:"

# In seconds: a token of a small model takes milliseconds, an answer of a large one minutes.
TOKEN_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
FIRST_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
LENGTH_BUCKETS = tuple(2**power for power in range(18))
REQUEST_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600)


class Metrics:
    """The metrics of an engine. model_name, replica: labels of all; None for no such label."""

    def __init__(self, model_name: str, replica: str | None = None) -> None:
        self.registry = CollectorRegistry()
        self._labels = {"model_name": model_name}
        if replica is not None:
            self._labels["replica"] = replica
        self.running = self._gauge("num_requests_running", "Running requests.")
        self.waiting = self._gauge(
            "num_requests_waiting_for_memory", "Admitted requests that wait for memory."
        )
        self.kv_usage = self._gauge("kv_cache_usage_perc", "KV cache in use, 0 to 1.")
        self.batch_invariant = self._gauge(
            "batch_invariant", "1 if passes are known to be batch-invariant, else 0."
        )
        self.prompt_tokens = self._counter("prompt_tokens", "Tokens of prompts.")
        self.generation_tokens = self._counter("generation_tokens", "Tokens of outputs.")
        self.prefix_queries = self._counter("prefix_cache_queries", "Prompt tokens looked up.")
        self.prefix_hits = self._counter("prefix_cache_hits", "Prompt tokens found in caches.")
        self.drafts = self._counter("spec_decode_num_drafts", "Rounds with draft tokens.")
        self.drafted = self._counter("spec_decode_num_draft_tokens", "Draft tokens.")
        self.accepted = self._counter("spec_decode_num_accepted_tokens", "Accepted draft tokens.")
        self.draft_failures = self._counter(
            "spec_decode_num_draft_failures", "Draft models disabled because of NaN."
        )
        self.prefill = self._histogram(
            "request_prefill_time_seconds", "From admission to the first token.", FIRST_BUCKETS
        )
        self.decode = self._histogram(
            "request_decode_time_seconds", "From the first token to the last.", REQUEST_BUCKETS
        )
        self.prompt_lengths = self._histogram(
            "request_prompt_tokens", "Tokens of the prompt of a request.", LENGTH_BUCKETS
        )
        self.output_lengths = self._histogram(
            "request_generation_tokens", "Tokens of the output of a request.", LENGTH_BUCKETS
        )
        self.between = self._histogram(
            "inter_token_latency_seconds", "Between two rounds of a request.", TOKEN_BUCKETS
        )
        self._successes = Counter(
            f"{PREFIX}request_success",
            "Finished requests, by finish reason.",
            (*self._labels, "finished_reason"),
            registry=self.registry,
        )
        for reason in ("stop", "length"):  # from 0 on: `rate` misses the first step otherwise
            self._successes.labels(**self._labels, finished_reason=reason)
        self._accepted_at = Counter(
            f"{PREFIX}spec_decode_num_accepted_tokens_per_pos",
            "Accepted draft tokens by position in the draft.",
            (*self._labels, "position"),
            registry=self.registry,
        )

    def watch(self, scheduler: Scheduler, main: Runner) -> None:
        """Read the gauges from the scheduler and the main model."""
        self.running.set_function(lambda: len(scheduler.running))
        self.waiting.set_function(lambda: len(scheduler.waiting))
        self.kv_usage.set_function(partial(_usage, main))
        self.registry.register(_Preemptions(scheduler, self._labels))

    def describe_cache(self, **config: int) -> None:
        """Describe the KV cache by labels of a gauge of 1."""
        labels = {**self._labels, **{name: str(value) for name, value in config.items()}}
        Gauge(
            f"{PREFIX}cache_config_info",
            "Size of the main model's KV cache.",
            tuple(labels),
            registry=self.registry,
        ).labels(**labels).set(1)

    def ended(self, stats: GenerationStats, finish_reason: str | None) -> None:
        """Count an ended generation. finish_reason: None if it failed or was cancelled."""
        if finish_reason is not None:
            self._successes.labels(**self._labels, finished_reason=finish_reason).inc()
            self.prompt_lengths.observe(stats.prompt_tokens)
            self.output_lengths.observe(stats.generated_tokens)
        if not stats.rounds:  # its prefill did not run
            return
        self.prompt_tokens.inc(stats.prompt_tokens)
        self.prefix_queries.inc(stats.prompt_tokens)
        self.prefix_hits.inc(stats.cached_tokens)
        self.draft_failures.inc(stats.draft_failures)
        for round_ in stats.rounds:
            if not round_.num_drafted:
                continue
            self.drafts.inc()
            self.drafted.inc(round_.num_drafted)
            self.accepted.inc(round_.num_kept)
            for position in range(round_.num_kept):
                self._accepted_at.labels(**self._labels, position=str(position)).inc()

    def _gauge(self, name: str, text: str) -> Gauge:
        gauge = Gauge(f"{PREFIX}{name}", text, tuple(self._labels), registry=self.registry)
        return gauge.labels(**self._labels)

    def _counter(self, name: str, text: str) -> Counter:
        counter = Counter(f"{PREFIX}{name}", text, tuple(self._labels), registry=self.registry)
        return counter.labels(**self._labels)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        histogram = Histogram(
            f"{PREFIX}{name}", text, tuple(self._labels), buckets=buckets, registry=self.registry
        )
        return histogram.labels(**self._labels)


class Timer:
    """Measures the times of one generation."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._last = monotonic()
        self._first: float | None = None

    def begin(self) -> None:
        """The generation was admitted."""
        self._last = monotonic()

    def receive(self, chunks: Sequence[Chunk]) -> None:
        """The chunks of a round have arrived."""
        now = monotonic()
        latency = self._metrics.prefill if self._first is None else self._metrics.between
        latency.observe(now - self._last)
        self._last, self._first = now, now if self._first is None else self._first
        self._metrics.generation_tokens.inc(sum(len(chunk.token_ids) for chunk in chunks))
        if chunks[-1].finish_reason is not None:
            self._metrics.decode.observe(now - self._first)


def export(families: Iterable[Metric]) -> bytes:
    """Metrics as text for Prometheus. families: merged by name across replicas."""
    merged: dict[str, Metric] = {}
    for family in families:
        first = merged.setdefault(
            family.name, Metric(family.name, family.documentation, family.type)
        )
        first.samples += family.samples
    registry = CollectorRegistry()
    registry.register(_Families(merged.values()))
    return generate_latest(registry)


def _usage(main: Runner) -> float:
    """Used fraction of a KV cache, 0 to 1; 0 if the device manages it."""
    free, capacity = main.num_free, main.capacity
    return 0.0 if free is None or not capacity else 1 - free / capacity


class _Preemptions(Collector):
    """Preemptions of sequences."""

    def __init__(self, scheduler: Scheduler, labels: Mapping[str, str]) -> None:
        self._scheduler = scheduler
        self._labels = labels

    def collect(self) -> Iterable[Metric]:
        name, text = f"{PREFIX}num_preemptions", "Preemptions of requests for lack of memory."
        family = CounterMetricFamily(name, text, labels=list(self._labels))
        family.add_metric(list(self._labels.values()), self._scheduler.num_preemptions)
        yield family


class _Families(Collector):
    """Metrics from other processes."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families
