"""What `ov-specdec bench` and the laboratory's `peers` have in common: their reports."""

import json
import subprocess

PNG = b"\x89PNG\r\n\x1a\n"

LOADS = (
    *("--quick", "--concurrency", 2, "--arrivals", "poisson:100", "--precision", "exact"),
    *("--rounds", 1, "--max-new-tokens", 8, "--fixed-sizes", "none"),
)
"""Options of a short measurement of many requests."""


def run_apart(*command, **settings):
    """Run a command in a process of its own."""
    return subprocess.run(
        list(map(str, command)), capture_output=True, text=True, timeout=300, **settings
    )


def read_loads(folder, done):
    """The report of a run with `LOADS`, and its rows by method, each of which makes sense."""
    assert done.returncode == 0, done.stderr
    assert (folder / "concurrency.md").read_text() == done.stdout
    assert (folder / "concurrency.png").read_bytes().startswith(PNG)
    report = json.loads((folder / "concurrency.json").read_text())
    rows = {row["method"]: row for row in report["summary"]}
    for row in rows.values():
        assert row["concurrency"] == 2
        assert row["tokens/s"] > 0
        assert row["equal to plain"] == 1.0  # in exact precision
        assert row["first token(ms)"] <= row["first token(ms) (p95)"]
        assert row["step(ms)"] <= row["step(ms) (p95)"]
        assert row["reading"] > 0
        assert row["max_rss_mem(MiB)"] > 50
    assert rows["plain"]["tokens/step"] == 1.0
    return report, rows
