"""Measures what the plots show: draft lengths, temperatures, the cost of a pass."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Any

from ov_specdec.pipeline import SpeculativePipeline
from ov_specdec.runner.base import Runner
from ov_specdec.runner.cached_sequence import CachedSequence, alone
from ov_specdec.stats import RoundStats
from tests.benchmarks.peers.measurement import Measurement
from tests.benchmarks.peers.own import measure
from tests.benchmarks.peers.setup import Setup

PASS_REPEATS = 7
TIMELINE_ROUNDS = 25
"""Rounds in the time line: more could not be told apart."""

Step = Callable[[str], None]


@dataclass(frozen=True)
class Plan:
    """What the sweeps go through, and how often.

    temperatures: 0 is greedy decoding. num_prompts: from the first.
    """

    lengths: tuple[int, ...]
    temperatures: tuple[float, ...]
    pass_sizes: tuple[int, ...]
    num_prompts: int
    rounds: int
    max_new_tokens: int


FULL = Plan(
    lengths=tuple(range(1, 17)),
    temperatures=(0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2),
    pass_sizes=(*range(1, 17), 24, 32),
    num_prompts=4,
    rounds=2,
    max_new_tokens=128,
)
QUICK = Plan(
    lengths=(1, 2, 4, 8),
    temperatures=(0.0, 0.5, 1.0),
    pass_sizes=(1, 2, 4, 8),
    num_prompts=1,
    rounds=2,
    max_new_tokens=32,
)


@dataclass(frozen=True)
class Point:
    """What one setting of a sweep yields: medians over its prompts and rounds."""

    tokens_per_second: float
    acceptance_rate: float | None

    @classmethod
    def of(cls, measured: Sequence[Measurement]) -> "Point":
        """The medians of some measurements."""
        rates = [rate for m in measured if (rate := m.acceptance_rate) is not None]
        speeds = [m.tokens_per_second for m in measured]
        return cls(median(speeds), median(rates) if rates else None)


@dataclass(frozen=True)
class Sweeps:
    """The data of the plots.

    plain, adaptive: the lines to hold `by_length` (draft length, point) against. by_temperature:
    temperature, plain, speculative. pass_seconds: by model, the tokens of a pass and its seconds.
    by_position: by place in the draft, how many draft tokens of the longest length were judged
    there, all before them having been accepted, and how many of those were accepted. timeline: the
    first rounds of a generation with adaptive lengths.
    """

    plain: Point
    adaptive: Point
    by_length: list[tuple[int, Point]]
    by_temperature: list[tuple[float, Point, Point]]
    pass_seconds: dict[str, list[tuple[int, float]]]
    by_position: list[tuple[int, int]]
    timeline: tuple[RoundStats, ...]


def run_sweeps(setup: Setup, prompts: Sequence[Sequence[int]], plan: Plan, step: Step) -> Sweeps:
    """Measure everything, in this process, settings in turns. step: told what happens next."""
    step("loading models")
    pipeline = SpeculativePipeline(**setup.pipeline_arguments("auto", drafts=True))
    settings: dict[str, dict[str, Any]] = {
        "plain": {"num_assistant_tokens": 0},
        "adaptive": {"num_assistant_tokens_schedule": "adaptive"},
        **{f"length {n}": {"num_assistant_tokens": n} for n in plan.lengths},
    }
    for temperature in plan.temperatures:
        chosen = {"temperature": temperature} if temperature > 0 else {}
        for name in ("plain", "adaptive"):
            settings[f"temperature {temperature}, {name}"] = {**settings[name], **chosen}

    measured: dict[str, list[Measurement]] = {name: [] for name in settings}
    for round_ in range(plan.rounds + 1):  # the first is the warm-up
        for prompt in prompts[: plan.num_prompts]:
            for name, options in settings.items():
                step(f"{name}")
                # Without a seed: with one, lengths would not follow this machine's speed.
                result = measure(pipeline, prompt, plan.max_new_tokens, options)
                if round_ > 0:
                    measured[name].append(result)
    points = {name: Point.of(runs) for name, runs in measured.items()}
    longest = measured[f"length {max(plan.lengths)}"]
    step("cost of a pass")
    return Sweeps(
        plain=points["plain"],
        adaptive=points["adaptive"],
        by_length=[(n, points[f"length {n}"]) for n in plan.lengths],
        by_temperature=[
            (t, points[f"temperature {t}, plain"], points[f"temperature {t}, adaptive"])
            for t in plan.temperatures
        ],
        pass_seconds=_pass_seconds(pipeline, prompts[0], plan.pass_sizes),
        by_position=acceptance_by_position(r for m in longest for r in m.rounds),
        timeline=measured["adaptive"][0].rounds[:TIMELINE_ROUNDS],
    )


def num_steps(plan: Plan, num_prompts: int) -> int:
    """How often `run_sweeps` tells its `step` something."""
    settings = 2 + len(plan.lengths) + 2 * len(plan.temperatures)
    return 2 + (plan.rounds + 1) * min(plan.num_prompts, num_prompts) * settings


def acceptance_by_position(rounds: Iterable[RoundStats]) -> list[tuple[int, int]]:
    """Per place in the draft: draft tokens judged there, and how many of them were accepted."""
    judged: list[int] = []
    accepted: list[int] = []
    for round_ in rounds:
        for position in range(min(round_.num_accepted + 1, round_.num_drafted)):
            if position == len(judged):
                judged.append(0)
                accepted.append(0)
            judged[position] += 1
            accepted[position] += position < round_.num_accepted
    return list(zip(judged, accepted, strict=True))


def _pass_seconds(
    pipeline: SpeculativePipeline, prompt: Sequence[int], sizes: Sequence[int]
) -> dict[str, list[tuple[int, float]]]:
    """Median seconds of a pass over so many tokens behind a prompt, by model."""
    models = {"main": pipeline.main.runner}
    if pipeline.draft is not None:
        models["draft"] = pipeline.draft.runner
    return {
        name: [(size, _seconds(model, prompt, size)) for size in sizes]
        for name, model in models.items()
    }


def _seconds(model: Runner, prompt: Sequence[int], size: int) -> float:
    draft_tokens = [prompt[i % len(prompt)] for i in range(size - 1)]
    behind = prompt[-(model.max_length + 1 - size) :]  # as much of it as there is room for
    cache, times = CachedSequence(model), []
    for _ in range(PASS_REPEATS + 2):
        start = perf_counter()
        alone(cache.advance(behind, draft_tokens))
        times.append(perf_counter() - start)
    cache.discard()
    # The first reads the prompt, and OpenVINO prepares for a new size in the second.
    return median(times[2:])
