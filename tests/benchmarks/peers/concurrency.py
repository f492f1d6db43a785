"""Methods under loads of several requests: what is run, and the figures that follow from it."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median, quantiles
from typing import Any

from tests.benchmarks.peers.load import TOGETHER, Load, Served, arrival_seconds
from tests.benchmarks.peers.methods import BASELINE
from tests.benchmarks.peers.runner import Task, Worker, take_turns
from tests.benchmarks.peers.summary import MIB, spread_columns
from tests.benchmarks.tables import Interval

LOADS_PER_REQUEST = 4
"""Requests of a load whose arrivals are spread, for each that may be under way: so most of the load
runs at the concurrency that it is called by, and its beginning and end count for little."""

WARM_UP = -1
"""The round whose measurements are not kept."""


@dataclass(frozen=True)
class LoadPlan:
    """What loads are run. prompts: token ids, used one after the other and from the first again.

    arrivals: see `arrival_seconds`. timeout: seconds of one load.
    """

    prompts: Sequence[Sequence[int]]
    concurrency: Sequence[int]
    arrivals: str
    rounds: int
    max_new_tokens: int
    timeout: float

    def loads(self, concurrency: int, round_: int) -> list[Load]:
        """The loads of one round: as many as all prompts fill, at least one."""
        size = concurrency * (1 if self.arrivals == TOGETHER else LOADS_PER_REQUEST)
        return [
            Load(
                [list(self.prompts[i % len(self.prompts)]) for i in range(first, first + size)],
                arrival_seconds(self.arrivals, size, seed=round_),
                self.max_new_tokens,
                concurrency,
            )
            for first in range(0, max(len(self.prompts) - size, 0) + 1, size)
        ]


@dataclass(frozen=True)
class LoadRun:
    """One load as one method served it. reads_only: it was told to generate one token each."""

    method: str
    concurrency: int
    round: int
    load: int
    reads_only: bool
    served: list[Served]

    @property
    def seconds(self) -> float:
        """From the first arrival to the last token."""
        return max(each.steps[-1][0] for each in self.served)

    @property
    def tokens_per_second(self) -> float:
        """Output tokens of all requests per second."""
        return sum(len(each.token_ids) for each in self.served) / self.seconds


@dataclass
class LoadOutcome:
    """All that came of it.

    peak_memory: by method and concurrency, the most bytes that its process had held until then.
    failures: why a method did not run, or not to the end. is_interrupted: it was ended by Ctrl-C.
    frameworks: whose the methods are.
    """

    runs: list[LoadRun] = field(default_factory=list)
    load_seconds: dict[str, float] = field(default_factory=dict)
    peak_memory: dict[tuple[str, int], int] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    is_interrupted: bool = False
    frameworks: dict[str, str] = field(default_factory=dict)

    def select(self, method: str, concurrency: int) -> list[LoadRun]:
        """The measured runs of a method at one concurrency."""
        return [
            run
            for run in self.runs
            if (run.method, run.concurrency, run.reads_only) == (method, concurrency, False)
        ]


@dataclass(frozen=True)
class _Place:
    """Where a task belongs."""

    concurrency: int
    round: int
    load: int
    reads_only: bool = False


def run_loads(
    start: Callable[[], Worker],
    loads: dict[str, dict[str, Any]],
    plan: LoadPlan,
    step: Callable[[str], None],
) -> LoadOutcome:
    """Have all methods serve all loads in turns. start, loads, step: see `take_turns`.

    At each concurrency the first load is served once to warm up, and once with one new token per
    request, which measures what reading the prompts takes.
    """
    work = list(_tasks(plan))
    tasks = [task for _, task in work]
    found = take_turns(start, loads, None, tasks, plan.timeout, step)
    outcome = LoadOutcome(
        load_seconds=found.load_seconds,
        failures=found.failures,
        is_interrupted=found.is_interrupted,
    )
    for method, number, answer in found.answers:
        place = work[number][0]
        if answer["peak_memory"] is not None:
            outcome.peak_memory[method, place.concurrency] = answer["peak_memory"]
        if place.round != WARM_UP:
            served = [Served.from_dict(each) for each in answer["served"]]
            outcome.runs.append(LoadRun(method, **asdict(place), served=served))
    return outcome


def num_tasks(plan: LoadPlan) -> int:
    """How many tasks each method gets."""
    return len(_tasks(plan))


def _tasks(plan: LoadPlan) -> list[tuple[_Place, Task]]:
    tasks = []
    for concurrency in plan.concurrency:
        name = f"concurrency {concurrency}"
        first = plan.loads(concurrency, 0)[0]
        reading = Load(first.prompts, [0.0] * len(first.prompts), 1, concurrency)
        place = _Place(concurrency, 0, 0, reads_only=True)
        tasks.append((_Place(concurrency, WARM_UP, 0), _task(f"{name}, warm-up", first)))
        tasks.append((place, _task(f"{name}, prompts", reading)))
        tasks += [
            (_Place(concurrency, round_, number), _task(f"{name}, round {round_ + 1}", load))
            for round_ in range(plan.rounds)
            for number, load in enumerate(plan.loads(concurrency, round_))
        ]
    return tasks


def _task(title: str, load: Load) -> Task:
    return Task(title, {"load": asdict(load)})


def load_ratios(outcome: LoadOutcome, concurrency: int, method: str, baseline: str) -> list[float]:
    """Tokens/s of a method by those of the baseline, on the same load in the same round."""
    speeds = [
        {(run.round, run.load): run.tokens_per_second for run in outcome.select(name, concurrency)}
        for name in (method, baseline)
    ]
    return [own / speeds[1][place] for place, own in speeds[0].items() if place in speeds[1]]


def reading_share(outcome: LoadOutcome, concurrency: int, method: str) -> float | None:
    """The part of the first load's time that reading its prompts takes; None if not measured."""
    reading = [
        run.seconds
        for run in outcome.runs
        if (run.method, run.concurrency, run.reads_only) == (method, concurrency, True)
    ]
    whole = [run.seconds for run in outcome.select(method, concurrency) if run.load == 0]
    return median(reading) / median(whole) if reading and whole else None


def summarize_loads(outcome: LoadOutcome, baseline: str = BASELINE) -> list[dict[str, Any]]:
    """One row per concurrency and method: figures by column name; None where it does not tell."""
    rows = dict.fromkeys((run.concurrency, run.method) for run in outcome.runs)
    return [
        _row(outcome, concurrency, method, baseline)
        for concurrency, method in sorted(rows, key=lambda row: row[0])
        if outcome.select(method, concurrency)
    ]


def _row(outcome: LoadOutcome, concurrency: int, method: str, baseline: str) -> dict[str, Any]:
    runs = outcome.select(method, concurrency)
    requests = [each for run in runs for each in run.served]
    ratio = Interval.of(load_ratios(outcome, concurrency, method, baseline))
    memory = outcome.peak_memory.get((method, concurrency))
    drafted = sum(each.drafted or 0 for each in requests)
    return {
        "concurrency": concurrency,
        "method": method,
        "framework": outcome.frameworks.get(method),
        "loads": len(runs),
        **spread_columns("tokens/s", [run.tokens_per_second for run in runs]),
        f"ratio to {baseline}": ratio.median if ratio else None,
        f"ratio to {baseline} (low)": ratio.low if ratio else None,
        f"ratio to {baseline} (high)": ratio.high if ratio else None,
        **_latency("first token(ms)", [each.first_token_seconds for each in requests]),
        **_latency("step(ms)", [gap for each in requests for gap in each.step_seconds]),
        "tokens/step": sum(len(r.token_ids) for r in requests)
        / sum(len(r.steps) for r in requests),
        "acceptance": sum(r.accepted or 0 for r in requests) / drafted if drafted else None,
        "reading": reading_share(outcome, concurrency, method),
        "max_rss_mem(MiB)": None if memory is None else memory / MIB,
        "equal to plain": _share_equal(outcome, concurrency, method),
    }


def _latency(column: str, seconds: Sequence[float]) -> dict[str, float | None]:
    """Median and 95th percentile, in milliseconds."""
    percentiles = quantiles(seconds, n=20, method="inclusive") if len(seconds) > 1 else seconds
    return {
        column: 1000 * median(seconds) if seconds else None,
        f"{column} (p95)": 1000 * percentiles[-1] if percentiles else None,
    }


def _share_equal(outcome: LoadOutcome, concurrency: int, method: str) -> float | None:
    """The share of requests whose output is that of plain decoding in the same load."""
    outputs = {(r.round, r.load): r.served for r in outcome.select(BASELINE, concurrency)}
    equal = [
        own.token_ids == plain.token_ids
        for run in outcome.select(method, concurrency)
        for own, plain in zip(run.served, outputs.get((run.round, run.load), []), strict=False)
    ]
    return sum(equal) / len(equal) if equal else None
