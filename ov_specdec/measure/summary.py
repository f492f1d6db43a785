"""Summarizes interleaved runs: medians, quartiles and speedups, in a table."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import quantiles

from rich import box
from rich.table import Table

from ov_specdec.measure.methods import PLAIN, TimedAnswer


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
        low, middle, high = quantiles(known * (2 if len(known) == 1 else 1), method="inclusive")
        return cls(middle, low, high)

    def __format__(self, form: str) -> str:
        return f"{self.median:{form}} ({self.low:{form}} to {self.high:{form}})"


@dataclass(frozen=True)
class Turn:
    """The answers of all methods to requests that arrived together, by method."""

    concurrency: int
    answers: Mapping[str, Sequence[TimedAnswer]]

    def speed(self, method: str) -> float:
        """Output tokens of all requests, divided by the seconds until the last one ends."""
        answers = self.answers[method]
        num_tokens = sum(len(answer.result.token_ids) for answer in answers)
        return num_tokens / max(answer.seconds for answer in answers)


@dataclass(frozen=True)
class SummaryRow:
    """The results of a method at one concurrency.

    ratio: of tokens per second to plain decoding's in the same turn. first_token_seconds,
    token_seconds: of a request. acceptance: fraction of accepted draft tokens; None if none were
    drafted. equal: fraction of requests with plain decoding's output.
    """

    concurrency: int
    method: str
    num_turns: int
    tokens_per_second: Spread
    ratio: Spread
    first_token_seconds: Spread
    token_seconds: Spread
    tokens_per_pass: float
    acceptance: float | None
    equal: float


def summarize(turns: Sequence[Turn]) -> list[SummaryRow]:
    """A row for each concurrency and method, in their order; one method is plain decoding."""
    sizes: dict[int, list[Turn]] = {}
    for turn in turns:
        sizes.setdefault(turn.concurrency, []).append(turn)
    return [_row(method, own) for own in sizes.values() for method in own[0].answers]


def _row(method: str, turns: Sequence[Turn]) -> SummaryRow:
    answers = [answer for turn in turns for answer in turn.answers[method]]
    plain = [answer for turn in turns for answer in turn.answers[PLAIN.name]]
    pairs = zip(answers, plain, strict=True)
    equal = [own.result.token_ids == other.result.token_ids for own, other in pairs]
    stats = [answer.result.stats for answer in answers]
    num_drafted = sum(each.drafted for each in stats)
    return SummaryRow(
        turns[0].concurrency,
        method,
        len(turns),
        Spread.of(turn.speed(method) for turn in turns),
        Spread.of(turn.speed(method) / turn.speed(PLAIN.name) for turn in turns),
        Spread.of(answer.first_token_seconds for answer in answers),
        Spread.of(answer.token_seconds for answer in answers),
        sum(each.generated_tokens for each in stats) / sum(each.main_passes for each in stats),
        sum(each.accepted for each in stats) / num_drafted if num_drafted else None,
        sum(equal) / len(equal),
    )


def make_table(rows: Sequence[SummaryRow]) -> Table:
    """A table, valid as Markdown if lines do not wrap; quartiles in parentheses."""
    table = Table(box=box.MARKDOWN, show_edge=False, pad_edge=False)
    table.add_column("method", no_wrap=True)
    for name in (
        *("concurrency", "tokens/s", "speedup", "first token (ms)", "per token (ms)"),
        *("tokens per pass", "accepted", "equal to plain"),
    ):
        table.add_column(name, justify="right", overflow="fold")
    for row in rows:
        table.add_row(
            row.method,
            f"{row.concurrency}",
            f"{row.tokens_per_second:.1f}",
            f"{row.ratio:.2f}",
            f"{1000 * row.first_token_seconds.median:.1f}",
            f"{1000 * row.token_seconds.median:.1f}",
            f"{row.tokens_per_pass:.2f}",
            "-" if row.acceptance is None else f"{row.acceptance:.0%}",
            f"{row.equal:.0%}",
        )
    return table
