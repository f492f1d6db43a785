"""The report on methods under load: JSON with everything, CSV, and Markdown for people."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tests.benchmarks.peers.concurrency import LoadOutcome, reading_share, summarize_loads
from tests.benchmarks.peers.methods import BASELINE
from tests.benchmarks.peers.report import (
    NONE,
    environment_lines,
    failure_lines,
    table_line,
    write_csv,
)


@dataclass(frozen=True)
class ConcurrencyReport:
    """What was measured of methods under load. environment, schedule: see `Report`."""

    environment: Mapping[str, Any]
    schedule: Mapping[str, Any]
    outcome: LoadOutcome
    baseline: str = BASELINE

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """A row per concurrency and method."""
        return summarize_loads(self.outcome, self.baseline)

    def write(self, folder: Path) -> list[Path]:
        """Write concurrency.md, concurrency.json and concurrency.csv; returns their paths."""
        files = [folder / f"concurrency.{suffix}" for suffix in ("md", "json", "csv")]
        files[0].write_text(self.markdown(), encoding="utf-8")
        files[1].write_text(json.dumps(self.as_dict()), encoding="utf-8")
        write_csv(files[2], self.rows)
        return files

    def as_dict(self) -> dict[str, Any]:
        """All of it for JSON, down to the single steps of each request."""
        return {
            "environment": self.environment,
            "schedule": self.schedule,
            "summary": self.rows,
            "failures": self.outcome.failures,
            "runs": [asdict(run) for run in self.outcome.runs],
        }

    def markdown(self) -> str:
        """A table for each concurrency, what did not run and why, and the environment."""
        schedule = {**self.schedule, "baseline": self.baseline}
        parts = [
            *self._tables(),
            *failure_lines(self.outcome.failures),
            *environment_lines(self.environment, schedule),
        ]
        return "\n".join(parts).lstrip("\n") + "\n"

    def _tables(self) -> list[str]:
        lines = []
        for concurrency in dict.fromkeys(row["concurrency"] for row in self.rows):
            share = reading_share(self.outcome, concurrency, self.baseline)
            reading = f"; reading prompts is {share:.0%} of {self.baseline}'s time" if share else ""
            lines += ["", f"Concurrency {concurrency}{reading}:", ""]
            lines += self._table([row for row in self.rows if row["concurrency"] == concurrency])
        return lines

    def _table(self, rows: Sequence[Mapping[str, Any]]) -> list[str]:
        ratio = f"ratio to {self.baseline}"
        columns = {
            "method": "{method}",
            "tokens/s": "{tokens/s:.1f} ({tokens/s (q1):.1f} to {tokens/s (q3):.1f})",
            ratio: f"{{{ratio}:.2f}} ({{{ratio} (low):.2f}} to {{{ratio} (high):.2f}})",
            "first token(ms), p95": "{first token(ms):.0f}, {first token(ms) (p95):.0f}",
            "step(ms), p95": "{step(ms):.1f}, {step(ms) (p95):.1f}",
            "tokens/step": "{tokens/step:.2f}",
            "acceptance": "{acceptance:.0%}",
            "max_rss_mem(MiB)": "{max_rss_mem(MiB):.0f}",
            "equal to plain": "{equal to plain:.0%}",
        }
        head = [table_line(list(columns)), table_line(["---", *["---:"] * (len(columns) - 1)])]
        return head + [table_line([_cell(form, row) for form in columns.values()]) for row in rows]


def _cell(form: str, row: Mapping[str, Any]) -> str:
    """A cell; its figures are there all or none."""
    try:
        return form.format_map(row)
    except TypeError:  # None has no format
        return NONE
