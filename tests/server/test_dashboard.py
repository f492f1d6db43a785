"""The Grafana dashboard asks for metrics that the server has."""

import re
from pathlib import Path
from types import SimpleNamespace

from ov_specdec.engine.scheduler import Limits, Scheduler
from ov_specdec.results.chunks import Chunk
from ov_specdec.results.stats import GenerationStats, RoundStats
from ov_specdec.server.access import Record
from ov_specdec.server.metrics import Metrics, RequestMetrics, export

DASHBOARD = Path(__file__).parents[2] / "docs" / "grafana.json"


def test_every_metric_of_the_dashboard_exists():
    metrics = Metrics("a-model")
    stats = GenerationStats(5, [RoundStats(2, 1, 2, 0, 0, 0, 0)])
    last = Chunk("a", [1], "plain", finish_reason="stop", stats=stats)
    sequence = SimpleNamespace(begun=0.0, first_token=None, latest=None)
    metrics.received(sequence, [last])
    metrics.ended(stats, "stop")
    loop = SimpleNamespace(
        engine=SimpleNamespace(scheduler=Scheduler(None, None, Limits())), num_waiting=(0, 0)
    )
    metrics.watch(loop, SimpleNamespace(num_free=None, capacity=None), 8)
    requests = RequestMetrics("a-model")
    requests.failed(Record("POST", "/v1/completions", status=500))
    text = export([*requests.registry.collect(), *metrics.registry.collect()]).decode()
    known = set(re.findall(r"^(ov_specdec:\w+)", text, re.MULTILINE))
    asked = set(re.findall(r"ov_specdec:\w+", DASHBOARD.read_text(encoding="utf-8")))
    assert asked <= known
    assert len(asked) > 12
