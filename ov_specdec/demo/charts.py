"""The data of the charts, as tables."""

from collections.abc import Sequence

import pandas as pd

from ov_specdec.demo.comparison import Comparison
from ov_specdec.demo.run import Run
from ov_specdec.demo.sweep import Point

ACCEPTED, REJECTED = "accepted", "rejected"
PARTS = ("drafting", "verifying", "rest")


def draft_tokens_by_round(run: Run) -> pd.DataFrame:
    """Accepted and rejected draft tokens of each round; empty before the end."""
    rows = []
    for number, round_ in enumerate(run.stats.rounds[1:] if run.stats else [], start=1):
        rows.append((number, ACCEPTED, round_.num_kept))
        rows.append((number, REJECTED, round_.num_drafted - round_.num_accepted))
    return pd.DataFrame(rows, columns=["round", "draft token", "draft tokens"])


def time_by_part(comparison: Comparison) -> pd.DataFrame:
    """Seconds in each part, of complete runs.

    The main model's prefill counts as verification; rest is rollback and all else.
    """
    rows = []
    for name, run in (("plain", comparison.plain), ("speculative", comparison.speculative)):
        if run.stats is not None:
            drafting = run.stats.draft_seconds
            verifying = sum(round_.verify_seconds for round_ in run.stats.rounds)
            seconds = (drafting, verifying, run.stats.seconds - drafting - verifying)
            rows += [(name, part, value) for part, value in zip(PARTS, seconds, strict=True)]
    return pd.DataFrame(rows, columns=["method", "part", "seconds"])


def by_temperature(points: Sequence[Point]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Tokens per second of both methods, and acceptance, by temperature."""
    speeds = [
        (point.temperature, method, speed)
        for point in points
        for method, speed in (("plain", point.plain), ("speculative", point.speculative))
    ]
    rates = [(point.temperature, point.acceptance) for point in points]
    return (
        pd.DataFrame(speeds, columns=["temperature", "method", "tokens/s"]),
        pd.DataFrame(rates, columns=["temperature", "acceptance"]),
    )
