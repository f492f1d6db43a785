"""From hand-made measurements to the figures of a report."""

import csv
import json

import pytest

from ov_specdec import RoundStats
from ov_specdec.bench.summary import Spread
from tests.benchmarks.peers.measurement import Measurement
from tests.benchmarks.peers.report import Report
from tests.benchmarks.peers.runner import Outcome, Run
from tests.benchmarks.peers.summary import (
    paired_ratios,
    run_rows,
    share_equal,
    spread_of,
    summarize,
)

ENVIRONMENT = {
    "machine": {"name": "a CPU", "cores": 2, "system": "Linux"},
    "versions": {"openvino": "2026.4.1", "torch": None},
    "command": "python -m tests.benchmarks peers",
    "models": {"main": {"name": "M", "digest": "1"}, "draft": {"name": "D", "digest": "2"}},
    "options": {"device": "CPU", "precision": "default", "properties": {}},
    "code": {"commit": "abc", "clean": True},
    "date": "2026-01-01",
}
ROUND = RoundStats(2, 1, 2, 0.1, 0.2, 0.0, 0.3)


def measured(seconds, token_ids=(1, 2, 3, 4), **figures):
    return Measurement(7, list(token_ids), seconds, 0.25, **figures)


def outcome():
    """Two prompts in two rounds: the second round is twice as slow for everybody."""
    runs = []
    for round_, slow in enumerate((1, 2)):
        for prompt in (0, 1):
            runs.append(Run("plain", round_, prompt, measured(4.0 * slow, main_passes=4)))
            ids = (1, 2, 3, 4 + prompt)
            figures = {"drafted": 4, "accepted": 1 + 2 * prompt, "main_passes": 2}
            runs.append(Run("adaptive", round_, prompt, measured(1.0 * slow, ids, **figures)))
    return Outcome(
        runs, {"plain": 0.5, "adaptive": 1.5}, {"plain": 3 * 2**20}, {"both": "not here"}
    )


def test_a_measurement_survives_json():
    measurement = measured(2.0, drafted=2, accepted=1, rounds=(ROUND, ROUND))
    content = json.loads(json.dumps(measurement.as_dict()))
    assert Measurement.from_dict(content) == measurement


def test_figures_of_a_measurement():
    measurement = measured(1.0, drafted=4, accepted=3, main_passes=2)
    assert measurement.tokens_per_second == 4.0
    assert measurement.time_per_output_token == pytest.approx(0.25)
    assert measurement.acceptance_rate == 0.75
    assert measurement.tokens_per_main_pass == 2.0
    assert measured(1.0, (5,)).time_per_output_token is None
    assert measured(1.0).acceptance_rate is None


@pytest.mark.parametrize(
    ("values", "spread"),
    [
        ([], None),
        ([3.0], Spread(3.0, 3.0, 3.0)),
        ([5.0, 1.0, 2.0, 4.0, 3.0], Spread(3.0, 2.0, 4.0)),
        ([1.0, 2.0], Spread(1.5, 1.25, 1.75)),
    ],
)
def test_median_and_quartiles(values, spread):
    assert spread_of(values) == spread


def test_ratios_are_those_of_pairs_not_of_medians():
    runs = [
        Run("plain", 0, 0, measured(4.0)),
        Run("adaptive", 0, 0, measured(2.0)),
        Run("plain", 0, 1, measured(10.0)),
        Run("adaptive", 0, 1, measured(1.0)),
        Run("adaptive", 1, 0, measured(1.0)),  # plain died in this round
    ]
    assert paired_ratios(runs, "adaptive", "plain") == [2.0, 10.0]
    assert paired_ratios(runs, "plain", "adaptive") == [0.5, 0.1]


def test_an_output_is_equal_only_if_it_is_in_every_round():
    same, other = measured(1.0), measured(1.0, (1, 2))
    runs = [Run("plain", r, p, same) for r in (0, 1) for p in (0, 1)]
    assert share_equal(runs, "plain") == 1.0
    runs += [Run("adaptive", 0, 0, same), Run("adaptive", 1, 0, other), Run("adaptive", 0, 1, same)]
    assert share_equal(runs, "adaptive") == 0.5
    assert share_equal(runs[4:], "adaptive") is None  # nothing to compare with


def test_a_row_has_the_medians_of_its_method():
    plain, adaptive = summarize(outcome())
    assert adaptive["method"] == "adaptive"
    assert adaptive["iterations"] == 4
    assert adaptive["tokens/s"] == 3.0
    assert (adaptive["tokens/s (q1)"], adaptive["tokens/s (q3)"]) == (2.0, 4.0)
    assert adaptive["ratio to plain"] == 4.0
    assert adaptive["2nd_avg_latency(ms)"] == pytest.approx(1000 * 1.25 / 3)
    assert adaptive["2nd_avg_latency(ms) (q1)"] == pytest.approx(250.0)
    assert adaptive["acceptance"] == 0.5
    assert adaptive["equal to plain"] == 0.5
    assert adaptive["pretrain_time(s)"] == 1.5
    assert adaptive["max_rss_mem(MiB)"] is None
    assert plain["1st_latency(ms)"] == 250.0
    assert plain["2nd_avg_latency(ms)"] == pytest.approx(1000 * (6.0 - 0.25) / 3)
    assert plain["max_rss_mem(MiB)"] == 3.0
    assert plain["acceptance"] is None


def test_another_baseline_changes_the_ratios_but_not_the_equality():
    plain, adaptive = summarize(outcome(), "adaptive")
    assert plain["ratio to adaptive"] == 0.25
    assert adaptive["ratio to adaptive"] == 1.0
    assert plain["equal to plain"] == 1.0


def test_a_baseline_without_runs_leaves_ratios_out():
    (row,) = summarize(Outcome([Run("adaptive", 0, 0, measured(1.0))]))
    assert row["ratio to plain"] is None
    assert row["equal to plain"] is None


def test_rows_of_runs_have_the_columns_of_llm_bench():
    first = run_rows(outcome(), ENVIRONMENT)[0]
    assert set(first) >= {
        "iteration",
        "model",
        "framework",
        "device",
        "pretrain_time(s)",
        "input_size",
        "generation_time(s)",
        "output_size",
        "latency(ms)",
        "1st_latency(ms)",
        "2nd_avg_latency(ms)",
        "precision",
        "prompt_idx",
        "result_md5",
    }
    assert first["latency(ms)"] == 1000.0  # per token
    rows = run_rows(outcome(), ENVIRONMENT)
    assert rows[0]["result_md5"] == rows[1]["result_md5"] != rows[3]["result_md5"]


def test_the_report_is_written_in_every_format(tmp_path):
    report = Report(ENVIRONMENT, {"rounds": 2}, outcome())
    files = {file.name: file for file in report.write(tmp_path / "new")}
    content = json.loads(files["report.json"].read_text())
    assert content["failures"] == {"both": "not here"}
    assert content["environment"]["models"]["main"] == {"name": "M", "digest": "1"}
    assert len(content["runs"]) == 8
    with files["summary.csv"].open() as stream:
        rows = list(csv.DictReader(stream))
    assert [row["method"] for row in rows] == ["plain", "adaptive"]
    assert float(rows[1]["tokens/s"]) == 3.0
    assert rows[1]["max_rss_mem(MiB)"] == ""
    with files["runs.csv"].open() as stream:
        assert len(list(csv.DictReader(stream))) == 8
    assert files["report.md"].read_text() == report.markdown()


def test_markdown_shows_figures_failures_and_what_it_ran_on():
    text = Report(ENVIRONMENT, {"rounds": 2}, outcome()).markdown()
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in table}) == 1
    assert table[3].startswith("| adaptive | 3.0 (2.0 to 4.0) | 4.00 (4.00 to 4.00) | 250 |")
    assert table[3].endswith("| - | 50% |")
    assert "- both: not here" in text
    assert "`python -m tests.benchmarks peers`" in text
    assert "openvino 2026.4.1" in text
    assert "torch" not in text  # not installed
    assert "properties: defaults" in text
