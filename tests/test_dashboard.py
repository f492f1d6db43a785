"""The Grafana dashboard asks for metrics that the server has."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

from ov_specdec.chunks import Chunk
from ov_specdec.engine import Limits
from ov_specdec.engine.scheduler import Scheduler
from ov_specdec.server.access import Record
from ov_specdec.server.metrics import Metrics, Timer, export
from ov_specdec.server.request_metrics import RequestMetrics
from ov_specdec.stats import GenerationStats, RoundStats

DASHBOARD = Path(__file__).parent.parent / "docs" / "grafana.json"


def test_every_metric_of_the_dashboard_exists():
    metrics = Metrics("a-model")
    stats = GenerationStats(5, [RoundStats(2, 1, 2, 0, 0, 0, 0)])
    last = Chunk("a", [1], "plain", finish_reason="stop", stats=stats)
    Timer(metrics).receive([last])
    metrics.ended(stats, "stop")
    metrics.watch(Scheduler(None, None, Limits()), SimpleNamespace(num_free=None, capacity=None))
    requests = RequestMetrics("a-model")
    requests.failed(Record("POST", "/v1/completions", status=500))
    text = export([*requests.registry.collect(), *metrics.registry.collect()]).decode()
    known = set(re.findall(r"^(ov_specdec:\w+)", text, re.MULTILINE))
    asked = set(re.findall(r"ov_specdec:\w+", DASHBOARD.read_text(encoding="utf-8")))
    assert asked <= known
    assert len(asked) > 12


def test_panels_do_not_overlap():
    panels = [panel["gridPos"] for panel in json.loads(DASHBOARD.read_text())["panels"]]
    places = {
        (x, y)
        for grid in panels
        for x in range(grid["x"], grid["x"] + grid["w"])
        for y in range(grid["y"], grid["y"] + grid["h"])
    }
    assert len(places) == sum(grid["w"] * grid["h"] for grid in panels)
    assert max(x for x, _ in places) < 24
