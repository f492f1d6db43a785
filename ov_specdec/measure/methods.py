"""Decoding methods: their pipelines, interleaved runs of them, and a summary in a table."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import quantiles
from time import monotonic
from typing import Any, TypeVar

from rich import box
from rich.table import Table

from ov_specdec.drafters.factory import WITH_DRAFT, DrafterName
from ov_specdec.errors import OptionError
from ov_specdec.options.generation import MAX_DRAFT_LENGTH, PLAIN
from ov_specdec.pipeline import SpeculativePipeline
from ov_specdec.results.chunks import GenerationResult, ResultBuilder

P = TypeVar("P")
R = TypeVar("R")

BASELINE = "plain"
"""The method of plain decoding: with a draft length of 0, a pipeline with any drafter does it."""

Method = tuple[DrafterName, Mapping[str, Any]]
"""The drafter of a method's pipeline, and the options of its generations."""

METHODS: Mapping[str, Method] = {
    BASELINE: ("none", PLAIN),
    "adaptive": ("model", {}),
    "suffix": ("suffix", {}),
    "prompt-lookup": ("prompt-lookup", {}),
    "both": ("both", {}),
}
"""By name: plain decoding, and each drafter with the default draft length."""

ALIKE: Mapping[str, Any] = {"ignore_eos": True, "cache_prompt": False}
"""Options of all generations that are compared: equal lengths, and a full prefill."""


def find_method(name: str) -> Method:
    """The method with a name; `OptionError` for an unknown name."""
    if name in METHODS:
        return METHODS[name]
    length = re.fullmatch(r"constant-([1-9]\d*)", name)
    if length and int(length[1]) <= MAX_DRAFT_LENGTH:
        return "model", {"num_assistant_tokens": int(length[1])}
    known = f"{', '.join(METHODS)} or constant-N, N from 1 to {MAX_DRAFT_LENGTH}"
    raise OptionError(f"method '{name}' does not exist: use {known}")


@dataclass(frozen=True)
class TimedAnswer:
    """The answer to a request, with the seconds from its arrival to its first and last token."""

    result: GenerationResult
    first_token_seconds: float
    seconds: float

    @property
    def token_seconds(self) -> float:
        """Seconds per token after the first; 0 if there is only one."""
        following = len(self.result.token_ids) - 1
        return (self.seconds - self.first_token_seconds) / following if following else 0.0


Answer = Callable[[Sequence[str]], Sequence[TimedAnswer]]
"""Answers concurrent prompts with one method."""

Turn = Mapping[str, Sequence[TimedAnswer]]
"""The answers of all methods to requests that arrived together, by method."""


def open_measured(*models: Path | str | None, **options: Any) -> SpeculativePipeline:
    """A pipeline with the given settings alone: no profile and no sampling defaults by itself."""
    return SpeculativePipeline(*models, **{"profile": "none", **options}, generation_config="none")


def open_methods(
    methods: Mapping[str, Method], arguments: Mapping[str, Any], options: Mapping[str, Any]
) -> dict[str, Answer]:
    """Each method as a function on a prepared pipeline with its drafter.

    Those with a draft model are loaded first; others take the profile of the first, which is that
    of the pair. Plain decoding runs on the first, whatever its drafter. arguments: of pipelines.
    options: of all generations.
    """
    drafters = dict.fromkeys(own for name, (own, _) in methods.items() if name != BASELINE)
    pipelines: dict[str, SpeculativePipeline] = {}
    given = {"profile": "auto", **arguments}
    for drafter in sorted(drafters, key=lambda name: name not in WITH_DRAFT) or ["none"]:
        if drafter not in WITH_DRAFT:
            for name in ("draft", "draft_device", "draft_properties", "pairing"):
                given.pop(name, None)  # only a pipeline with a draft model takes it
            if pipelines:
                main = next(iter(pipelines.values())).main
                given |= {"profile": "none", "properties": main.config.properties}
        pipelines[drafter] = pipeline = open_measured(**given, drafter=drafter)
        pipeline.prepare()
        pipeline.check_batch_invariant()
    first = next(iter(pipelines.values()))
    return {
        name: partial(answer_together, pipelines.get(drafter, first), {**options, **own})
        for name, (drafter, own) in methods.items()
    }


def answer_together(
    pipeline: SpeculativePipeline, options: Mapping[str, Any], prompts: Sequence[str]
) -> list[TimedAnswer]:
    """Answer prompts that arrive together, in their order; raises the first error of a request."""
    outputs = [ResultBuilder() for _ in prompts]
    with pipeline.open_batch() as batch:
        start = monotonic()
        for key, prompt in enumerate(prompts):
            batch.add(key, prompt, **options)
        while len(batch):
            news = batch.step()
            now = monotonic()
            for key, chunk in news:
                if isinstance(chunk, BaseException):
                    raise chunk
                outputs[key].add(chunk, now)
    return [
        TimedAnswer(own.result, (own.first_token or start) - start, (own.ended or start) - start)
        for own in outputs
    ]


def interleave(
    methods: Mapping[str, Callable[[P], R]],
    prompts: Iterable[P],
    step: Callable[[str], object] = str,
) -> Iterator[dict[str, R]]:
    """Run all methods on a prompt, then on the next one. Yields the results of each turn by method.

    Thus drifts of the machine's speed affect all. Every other turn has the opposite order: A B C,
    C B A. step: called with the name of a method before each run.
    """
    for turn, prompt in enumerate(prompts):
        results = {}
        for name in list(methods)[:: -1 if turn % 2 else 1]:
            step(name)
            results[name] = methods[name](prompt)
        yield {name: results[name] for name in methods}


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
        sizes.setdefault(len(turn[BASELINE]), []).append(turn)
    return [_row(method, own) for own in sizes.values() for method in own[0]]


def _speed(answers: Sequence[TimedAnswer]) -> float:
    """Output tokens of all requests, divided by the seconds until the last one ends."""
    num_tokens = sum(len(answer.result.token_ids) for answer in answers)
    return num_tokens / max(answer.seconds for answer in answers)


def _row(method: str, turns: Sequence[Turn]) -> SummaryRow:
    answers = [answer for turn in turns for answer in turn[method]]
    plain = [answer for turn in turns for answer in turn[BASELINE]]
    speeds = [(_speed(turn[method]), _speed(turn[BASELINE])) for turn in turns]
    pairs = zip(answers, plain, strict=True)
    equal = [own.result.token_ids == other.result.token_ids for own, other in pairs]
    stats = [answer.result.stats for answer in answers]
    num_drafted = sum(each.drafted for each in stats)
    num_tokens = sum(each.generated_tokens for each in stats)
    return SummaryRow(
        concurrency=len(turns[0][method]),
        method=method,
        num_turns=len(turns),
        tokens_per_second=Spread.of(own for own, _ in speeds),
        ratio=Spread.of(own / other for own, other in speeds),
        first_token_seconds=Spread.of(answer.first_token_seconds for answer in answers),
        token_seconds=Spread.of(answer.token_seconds for answer in answers),
        tokens_per_pass=num_tokens / sum(len(each.rounds) for each in stats),
        acceptance=sum(each.accepted for each in stats) / num_drafted if num_drafted else None,
        equal=sum(equal) / len(equal),
    )


COLUMNS: Mapping[str, Callable[[SummaryRow], str]] = {
    "concurrency": lambda row: str(row.concurrency),
    "tokens/s": lambda row: f"{row.tokens_per_second:.1f}",
    "speedup": lambda row: f"{row.ratio:.2f}",
    "first token (ms)": lambda row: f"{1000 * row.first_token_seconds.median:.1f}",
    "per token (ms)": lambda row: f"{1000 * row.token_seconds.median:.1f}",
    "tokens per pass": lambda row: f"{row.tokens_per_pass:.2f}",
    "accepted": lambda row: "-" if row.acceptance is None else f"{row.acceptance:.0%}",
    "equal to plain": lambda row: f"{row.equal:.0%}",
}


def make_table(rows: Sequence[SummaryRow]) -> Table:
    """A table, valid as Markdown if lines do not wrap; quartiles in parentheses."""
    table = Table(box=box.MARKDOWN, show_edge=False, pad_edge=False)
    table.add_column("method", no_wrap=True)
    for name in COLUMNS:
        table.add_column(name, justify="right", overflow="fold")
    for row in rows:
        table.add_row(row.method, *(show(row) for show in COLUMNS.values()))
    return table
