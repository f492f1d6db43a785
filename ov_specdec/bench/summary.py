"""Summarizes runs: medians, quartiles, and speedups over plain decoding."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import quantiles

from ov_specdec.bench.methods import PLAIN
from ov_specdec.bench.turns import Run


@dataclass(frozen=True)
class Spread:
    """Median, lower and upper quartile of some values."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> "Spread":
        """The spread of one value or more."""
        known = list(values)
        if len(known) == 1:
            return cls(known[0], known[0], known[0])
        low, middle, high = quantiles(known, n=4, method="inclusive")
        return cls(middle, low, high)


@dataclass(frozen=True)
class Row:
    """The results of a method at one concurrency.

    tokens_per_second: of a load. ratio: to plain decoding's on the same load in the same round.
    first_token_seconds, token_seconds: of a request. acceptance: fraction of accepted draft tokens;
    None if none were drafted. equal: fraction of requests with plain decoding's output.
    """

    concurrency: int
    method: str
    num_loads: int
    tokens_per_second: Spread
    ratio: Spread
    first_token_seconds: Spread
    token_seconds: Spread
    tokens_per_pass: float
    acceptance: float | None
    equal: float


def summarize(runs: Sequence[Run]) -> list[Row]:
    """A row for each concurrency and method, in their order.

    Plain decoding has to be the first method of each load, so that every run has its baseline.
    """
    plain = {run.place: run for run in runs if run.method == PLAIN.name}
    groups: dict[tuple[int, str], list[Run]] = {}
    for run in runs:
        groups.setdefault((run.concurrency, run.method), []).append(run)
    return [_row(group, [plain[run.place] for run in group]) for group in groups.values()]


def _row(runs: Sequence[Run], plain: Sequence[Run]) -> Row:
    """plain: for each run, that of plain decoding on the same load in the same round."""
    answers = [answer for run in runs for answer in run.answers]
    neighbours = [answer for run in plain for answer in run.answers]
    equal = [
        own.result.token_ids == other.result.token_ids
        for own, other in zip(answers, neighbours, strict=True)
    ]
    stats = [answer.result.stats for answer in answers]
    num_drafted = sum(each.drafted for each in stats)
    num_passes = sum(each.main_passes for each in stats)
    return Row(
        concurrency=runs[0].concurrency,
        method=runs[0].method,
        num_loads=len(runs),
        tokens_per_second=Spread.of(run.tokens_per_second for run in runs),
        ratio=Spread.of(
            run.tokens_per_second / other.tokens_per_second
            for run, other in zip(runs, plain, strict=True)
        ),
        first_token_seconds=Spread.of(answer.first_token_seconds for answer in answers),
        token_seconds=Spread.of(answer.token_seconds for answer in answers),
        tokens_per_pass=sum(each.generated_tokens for each in stats) / num_passes,
        acceptance=sum(each.accepted for each in stats) / num_drafted if num_drafted else None,
        equal=sum(equal) / len(equal),
    )
