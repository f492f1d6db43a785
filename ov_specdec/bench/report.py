"""The results of a benchmark as a table and as JSON."""

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

from rich import box
from rich.table import Table

from ov_specdec.bench.pipelines import Pipelines
from ov_specdec.bench.summary import Row, Spread, summarize
from ov_specdec.bench.turns import Run
from ov_specdec.loading.devices import describe_machine

FIGURES = (
    *("concurrency", "tokens/s", "speedup", "first token (ms)", "per token (ms)"),
    *("tokens per pass", "accepted", "equal to plain"),
)


def make_table(rows: Sequence[Row]) -> Table:
    """A table, valid as Markdown if lines do not wrap; quartiles in parentheses."""
    table = Table(box=box.MARKDOWN, show_edge=False, pad_edge=False)
    table.add_column("method", no_wrap=True)
    for name in FIGURES:
        table.add_column(name, justify="right", overflow="fold")
    for row in rows:
        table.add_row(
            row.method,
            f"{row.concurrency}",
            _spread(row.tokens_per_second, ".1f"),
            _spread(row.ratio, ".2f"),
            f"{1000 * row.first_token_seconds.median:.1f}",
            f"{1000 * row.token_seconds.median:.1f}",
            f"{row.tokens_per_pass:.2f}",
            "-" if row.acceptance is None else f"{row.acceptance:.0%}",
            f"{row.equal:.0%}",
        )
    return table


def _spread(spread: Spread, form: str) -> str:
    return f"{spread.median:{form}} ({spread.low:{form}} to {spread.high:{form}})"


def make_report(
    runs: Sequence[Run], pipelines: Pipelines, settings: Mapping[str, Any]
) -> dict[str, Any]:
    """All results for JSON, down to single rounds. settings: of the command."""
    return {
        "command": shlex.join(["ov-specdec", *sys.argv[1:]]),
        "version": version("ov-specdec"),
        "machine": describe_machine(settings["device"]),
        "settings": settings,
        "models": {
            drafter: [
                {**asdict(model.config), "kv": model.kv, "folder": model.folder.path}
                for model in (pipeline.main, pipeline.draft)
                if model is not None
            ]
            for drafter, pipeline in pipelines.items()
        },
        "table": [asdict(row) for row in summarize(runs)],
        "runs": [asdict(run) for run in runs],
    }
