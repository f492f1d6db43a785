"""Prometheus metrics, with vLLM's names after the prefix."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from time import monotonic
from types import SimpleNamespace
from typing import Any, NamedTuple

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Metric,
    generate_latest,
)

from ov_specdec.engine.loop import EngineLoop
from ov_specdec.engine.output import Output
from ov_specdec.results.chunks import Chunk
from ov_specdec.results.stats import GenerationStats
from ov_specdec.runner.base import Runner
from ov_specdec.server.access import CLIENT_LEFT, Record

METRIC_PREFIX = "ov_specdec:"

FAILURES = {CLIENT_LEFT: "abort", 504: "timeout"}
"""Reasons of failed requests, by status; otherwise "error"."""

# In seconds: a token of a small model takes milliseconds, an answer of a large one minutes.
BETWEEN = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
FIRST = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
LENGTHS = tuple(2**power for power in range(18))
WHOLE = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 600)


class Spec(NamedTuple):
    """A metric. more: buckets of a histogram, or else labels besides those of all."""

    kind: type[Gauge | Counter | Histogram]
    name: str
    text: str
    more: tuple[Any, ...] = ()


ENGINE = (
    Spec(Gauge, "num_requests_running", "Running requests."),
    Spec(Gauge, "num_requests_waiting", "Requests in the queue."),
    Spec(Gauge, "num_requests_waiting_for_memory", "Preempted requests that wait to run again."),
    Spec(Gauge, "kv_cache_usage_perc", "KV cache in use, 0 to 1."),
    Spec(Gauge, "batch_invariant", "1 if passes are known to be batch-invariant, else 0."),
    Spec(Counter, "num_preemptions", "Preemptions, for memory or the share of another key."),
    Spec(Counter, "prompt_tokens", "Tokens of prompts."),
    Spec(Counter, "generation_tokens", "Tokens of outputs."),
    Spec(Counter, "prefix_cache_queries", "Prompt tokens looked up."),
    Spec(Counter, "prefix_cache_hits", "Prompt tokens found in caches."),
    Spec(Counter, "spec_decode_num_drafts", "Rounds with draft tokens."),
    Spec(Counter, "spec_decode_num_draft_tokens", "Draft tokens."),
    Spec(Counter, "spec_decode_num_accepted_tokens", "Accepted draft tokens."),
    Spec(Counter, "spec_decode_num_draft_failures", "Draft models disabled because of NaN."),
    Spec(Histogram, "request_prefill_time_seconds", "From admission to the first token.", FIRST),
    Spec(Histogram, "request_decode_time_seconds", "From the first token to the last.", WHOLE),
    Spec(Histogram, "request_prompt_tokens", "Tokens of the prompt of a request.", LENGTHS),
    Spec(Histogram, "request_generation_tokens", "Tokens of the output of a request.", LENGTHS),
    Spec(Histogram, "inter_token_latency_seconds", "Between two rounds of a request.", BETWEEN),
    Spec(Counter, "request_success", "Finished requests, by finish reason.", ("finished_reason",)),
    Spec(
        Counter,
        "spec_decode_num_accepted_tokens_per_pos",
        "Accepted draft tokens by position in the draft.",
        ("position",),
    ),
    Spec(
        Gauge,
        "cache_config_info",
        "Size of the main model's KV cache.",
        ("kv_cache_size_tokens", "max_model_len"),
    ),
)
"""Of generations, where they run."""

REQUESTS = (
    Spec(
        Counter,
        "request_failure",
        "Failed requests, by reason, error code and HTTP status.",
        ("finished_reason", "error", "status"),
    ),
    Spec(Histogram, "request_queue_time_seconds", "From its checks to its admission.", WHOLE),
    Spec(Histogram, "time_to_first_token_seconds", "From arrival to the first token.", FIRST),
    Spec(Histogram, "e2e_request_latency_seconds", "From arrival to the last token.", WHOLE),
)
"""Of requests, where they arrive: observed when they have ended."""


class Registry:
    """The metrics of a table. labels: of all."""

    def __init__(self, table: Iterable[Spec], labels: Mapping[str, str]) -> None:
        self.registry = CollectorRegistry()
        self.labels = dict(labels)
        self._known: dict[str, Any] = {}
        for row in table:
            own = () if row.kind is Histogram else row.more
            more: Any = {"buckets": row.more} if row.kind is Histogram else {}
            name, names = f"{METRIC_PREFIX}{row.name}", (*labels, *own)
            made = row.kind(name, row.text, names, registry=self.registry, **more)
            self._known[row.name] = made if own else made.labels(**labels)

    def __getitem__(self, name: str) -> Any:
        return self._known[name]

    def labelled(self, name: str, **labels: object) -> Any:
        """A metric by labels of its own."""
        return self._known[name].labels(**self.labels, **labels)


class RequestMetrics(Registry):
    """Failed requests, and the times of all. model_name: label of all."""

    def __init__(self, model_name: str) -> None:
        super().__init__(REQUESTS, {"model_name": model_name})

    def observe(self, record: Record) -> None:
        """Count a request that has ended, if it failed, and observe its times."""
        if record.status >= 400:
            reason, status = FAILURES.get(record.status, "error"), str(record.status)
            labels = {"finished_reason": reason, "error": record.code or "", "status": status}
            self.labelled("request_failure", **labels).inc()
        if record.queued is not None:
            self["request_queue_time_seconds"].observe(record.queued)
        for output in record.outputs:
            if output.first_token is not None:
                self["time_to_first_token_seconds"].observe(output.first_token - record.arrived)
            if output.ended is not None:
                self["e2e_request_latency_seconds"].observe(output.ended - record.arrived)


class Metrics(Registry):
    """The metrics of an engine. model_name, replica: labels of all; None for no such label."""

    def __init__(self, model_name: str, replica: str | None = None) -> None:
        replicas = {} if replica is None else {"replica": replica}
        super().__init__(ENGINE, {"model_name": model_name, **replicas})
        for reason in ("stop", "length"):  # from 0 on: `rate` misses the first step otherwise
            self.labelled("request_success", finished_reason=reason)

    def watch(self, loop: EngineLoop, main: Runner, context: int) -> None:
        """Read gauges from the engine and the main model, count preemptions. context: in tokens."""
        scheduler = loop.engine.scheduler
        self["num_requests_running"].set_function(lambda: len(scheduler.running))
        self["num_requests_waiting"].set_function(lambda: loop.num_waiting[0])
        self["num_requests_waiting_for_memory"].set_function(lambda: loop.num_waiting[1])
        self["kv_cache_usage_perc"].set_function(partial(_usage, main))
        scheduler.on_preemption = self["num_preemptions"].inc
        sizes = {"kv_cache_size_tokens": main.capacity or 0, "max_model_len": context}
        self.labelled("cache_config_info", **sizes).set(1)

    def ended(self, stats: GenerationStats, finish_reason: str | None) -> None:
        """Count an ended generation. finish_reason: None if it failed or was cancelled."""
        if finish_reason is not None:
            self.labelled("request_success", finished_reason=finish_reason).inc()
            self["request_prompt_tokens"].observe(stats.prompt_tokens)
            self["request_generation_tokens"].observe(stats.generated_tokens)
        if not stats.rounds:  # its prefill did not run
            return
        added = {
            "prompt_tokens": stats.prompt_tokens,
            "prefix_cache_queries": stats.prompt_tokens,
            "prefix_cache_hits": stats.cached_tokens,
            "spec_decode_num_drafts": sum(each.num_drafted > 0 for each in stats.rounds),
            "spec_decode_num_draft_tokens": stats.drafted,
            "spec_decode_num_accepted_tokens": stats.accepted,
            "spec_decode_num_draft_failures": stats.draft_failures,
        }
        for name, number in added.items():
            self[name].inc(number)
        name = "spec_decode_num_accepted_tokens_per_pos"
        for position in (str(i) for each in stats.rounds for i in range(each.num_accepted)):
            self.labelled(name, position=position).inc()

    def received(self, output: Output, chunks: Sequence[Chunk]) -> None:
        """Observe the chunks of a round, before the output notes them."""
        now, first = monotonic(), output.first_token
        if first is None or output.latest is None:
            self["request_prefill_time_seconds"].observe(now - (output.begun or now))
        else:
            self["inter_token_latency_seconds"].observe(now - output.latest)
        self["generation_tokens"].inc(sum(len(chunk.token_ids) for chunk in chunks))
        if chunks[-1].finish_reason is not None:
            self["request_decode_time_seconds"].observe(now - (first or now))


def export(families: Iterable[Metric]) -> bytes:
    """Metrics as text for Prometheus. families: merged by name across replicas."""
    merged: dict[str, Metric] = {}
    for family in families:
        first = merged.setdefault(
            family.name, Metric(family.name, family.documentation, family.type)
        )
        first.samples += family.samples
    found: Any = SimpleNamespace(collect=merged.values)
    return generate_latest(found)


def _usage(main: Runner) -> float:
    """Used fraction of a KV cache, 0 to 1; 0 if the device manages it."""
    free, capacity = main.num_free, main.capacity
    return 0.0 if free is None or not capacity else 1 - free / capacity
