"""A benchmark's report: JSON with everything, CSV, and Markdown for people."""

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.benchmarks.peers.methods import BASELINE
from tests.benchmarks.peers.runner import Outcome
from tests.benchmarks.peers.summary import run_rows, summarize

MARKDOWN_COLUMNS = {
    "tokens/s": "{:.1f}",
    "1st_latency(ms)": "{:.0f}",
    "2nd_avg_latency(ms)": "{:.1f}",
    "acceptance": "{:.0%}",
    "tokens/main pass": "{:.2f}",
    "main(s)": "{:.2f}",
    "draft(s)": "{:.2f}",
    "max_rss_mem(MiB)": "{:.0f}",
    "equal to plain": "{:.0%}",
}
"""Columns of the Markdown table, and how their figures are written."""

WITH_QUARTILES = "{:.{digits}f} ({:.{digits}f} to {:.{digits}f})"
NONE = "-"


@dataclass(frozen=True)
class Report:
    """Everything that a benchmark found.

    environment: see `describe_environment`. schedule: rounds, prompts, tokens, baseline, as names
    and values.
    """

    environment: Mapping[str, Any]
    schedule: Mapping[str, Any]
    outcome: Outcome
    baseline: str = BASELINE

    def write(self, folder: Path) -> list[Path]:
        """Write report.json, report.md, summary.csv and runs.csv; returns their paths."""
        folder.mkdir(parents=True, exist_ok=True)
        files = [folder / name for name in ("report.md", "report.json", "summary.csv", "runs.csv")]
        files[0].write_text(self.markdown(), encoding="utf-8")
        files[1].write_text(json.dumps(self.as_dict()), encoding="utf-8")
        write_csv(files[2], summarize(self.outcome, self.baseline))
        write_csv(files[3], run_rows(self.outcome, self.environment))
        return files

    def as_dict(self) -> dict[str, Any]:
        """All of it for JSON, down to the single rounds."""
        return {
            "environment": self.environment,
            "schedule": self.schedule,
            "summary": summarize(self.outcome, self.baseline),
            "failures": self.outcome.failures,
            "runs": [asdict(run) for run in self.outcome.runs],
        }

    def markdown(self) -> str:
        """A table of methods, what did not run and why, and the environment."""
        schedule = {**self.schedule, "baseline": self.baseline}
        failures = failure_lines(self.outcome.failures)
        parts = [self.table(), *failures, *environment_lines(self.environment, schedule)]
        return "\n".join(parts) + "\n"

    def table(self) -> str:
        """The Markdown table: one row per method."""
        rows = summarize(self.outcome, self.baseline)
        return _table(rows, self.baseline)


def failure_lines(failures: Mapping[str, str]) -> list[str]:
    """Markdown on the methods that did not run, or not to the end."""
    lines = [f"- {name}: {reason}" for name, reason in failures.items()]
    return ["", "Not available, or not to the end:", "", *lines] if lines else []


def environment_lines(environment: Mapping[str, Any], schedule: Mapping[str, Any]) -> list[str]:
    """Markdown on what it was measured with. schedule: how, as names and values."""
    machine, versions, options = (environment[n] for n in ("machine", "versions", "options"))
    models = {role: model["name"] for role, model in environment["models"].items()}
    known = {name: value for name, value in versions.items() if value is not None}
    return [
        "",
        f"- command: `{environment['command']}`",
        f"- machine: {machine['name']}, {machine['cores']} cores, {machine['system']}",
        f"- versions: {_pairs(known, ' ')}",
        f"- models: {_pairs(models, ' ')} on {options['device']}",
        f"- precision: {options['precision']}, properties: "
        f"{_pairs(options['properties'], '=') or 'defaults'}",
        f"- commit: {environment['code']['commit']}, {environment['date']}",
        f"- {_pairs(schedule, ' ')}",
    ]


def _pairs(values: Mapping[str, Any], between: str) -> str:
    return ", ".join(f"{name}{between}{value}" for name, value in values.items())


def _table(rows: Sequence[Mapping[str, Any]], baseline: str) -> str:
    ratio = f"ratio to {baseline}"
    names = ["method", "tokens/s", ratio, *list(MARKDOWN_COLUMNS)[1:]]
    lines = [table_line(names), table_line(["---", *["---:"] * (len(names) - 1)])]
    for row in rows:
        cells = [str(row["method"]), _spread(row, "tokens/s", 1), _spread(row, ratio, 2)]
        for name, form in list(MARKDOWN_COLUMNS.items())[1:]:
            cells.append(NONE if row[name] is None else form.format(row[name]))
        lines.append(table_line(cells))
    return "\n".join(lines)


def table_line(cells: Sequence[str]) -> str:
    """A line of a Markdown table."""
    return f"| {' | '.join(cells)} |"


def _spread(row: Mapping[str, Any], name: str, digits: int) -> str:
    values = (row[name], row[f"{name} (q1)"], row[f"{name} (q3)"])
    return NONE if None in values else WITH_QUARTILES.format(*values, digits=digits)


def write_csv(file: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows that have the same columns."""
    with file.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, list(rows[0]) if rows else [])
        writer.writeheader()
        writer.writerows(rows)
