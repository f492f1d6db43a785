"""Simulated machines and texts, without a clock: how near the planner comes to the best length.

`python -m tests.benchmarks simulation` tries all machines and texts, the tests some of them.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import accumulate
from random import Random
from statistics import median

import click
import numpy as np

from ov_specdec.costs import SIZES, CostCurve, LiveCurve, PassCurve
from ov_specdec.speculation.acceptance import Common
from ov_specdec.speculation.adaptive import AdaptiveLength
from ov_specdec.stats import RoundStats
from tests.rounds import step_of

CURVES = {
    "flat": {1: 1.0, 17: 1.0},
    "linear": {1: 1.0, 17: 3.4},
    "stepped": {1: 1.0, 4: 1.0, 5: 1.6, 8: 1.6, 9: 2.6, 16: 2.6, 17: 4.0},
    "avx2": {1: 1.0, 2: 1.4, 3: 1.7, 5: 2.9, 9: 4.1, 17: 7.0},
}
"""Plain passes that a pass over so many tokens takes; linear between them."""

CHANGES = (0.0, 0.3, 1.0)
"""Plain passes that a pass takes longer if its size is another than that of the last one."""

STEP = 0.1
"""Plain passes that the draft model takes for a candidate."""

LENGTHS = (0, *range(2, 13))
PROMPT, NUM_TEXTS, NUM_TOKENS = 100, 4, 256


@dataclass(frozen=True)
class Machine:
    """What passes take, in plain passes. noise: relative deviation of each pass.

    outliers: the share of passes that take ten times as long. jumps: the share of rounds at which
    the pace of everything changes, by two.
    """

    passes: list[float]
    change: float
    noise: float = 0.05
    outliers: float = 0.02
    jumps: float = 0.01

    @classmethod
    def of(cls, curve: str, change: float) -> "Machine":
        sizes, values = zip(*CURVES[curve].items(), strict=True)
        return cls(np.interp(range(PROMPT + 1), sizes, values).tolist(), change)

    def measured(self, generator: Random) -> CostCurve:
        """Its curve, as far as measuring finds it."""
        row = {n: self.passes[n] * generator.gauss(1.0, self.noise / 2) for n in SIZES}
        return CostCurve(PassCurve({16: row}, self.change), PassCurve({16: {1: STEP}}))

    def disturb(self, seconds: float, generator: Random) -> float:
        outlier = 10.0 if generator.random() < self.outliers else 1.0
        return seconds * outlier * max(generator.gauss(1.0, self.noise), 0.5)


@dataclass(frozen=True)
class Text:
    """What candidates are worth.

    acceptance: probability that a candidate of the draft model is accepted, by the share of the
    text that is done. spread: how much candidates differ, 0 to 1, which the draft model knows; the
    mean is the same. matches: by their confidence, the share of places that have one, and the
    acceptance of their candidates. sources: who drafts.
    """

    acceptance: Callable[[float], float]
    spread: float = 0.0
    matches: dict[float, tuple[float, float]] = field(default_factory=dict)
    sources: tuple[str, ...] = ("model",)

    def candidates(self, done: float, generator: Random) -> list[float]:
        """The probability of each candidate, which is the draft model's confidence too."""
        mean = self.acceptance(done)
        if self.spread == 0.0:
            return [mean] * 16
        weight = 1.0 / self.spread - 1.0
        alpha, beta = mean * weight, (1.0 - mean) * weight
        return [generator.betavariate(alpha, beta) for _ in range(16)]

    def match(self, generator: Random) -> tuple[float, float] | None:
        """Confidence and acceptance of the match at a place, if there is one."""
        chance = generator.random()
        for confidence, (share, acceptance) in self.matches.items():
            chance -= share
            if chance < 0:
                return confidence, acceptance
        return None


def steady(acceptance: float) -> Callable[[float], float]:
    return lambda done: acceptance


LOOKUP = {0.5: (0.3, 0.15), 0.75: (0.2, 0.8)}
"""Short matches that are worth little, and long ones that are worth much."""

TEXTS = {
    **{f"{p}": Text(steady(p)) for p in (0.0, 0.2, 0.4, 0.6, 0.8, 0.95, 1.0)},
    **{f"~{p}": Text(steady(p), 0.6) for p in (0.3, 0.6, 0.8)},
    "0.9, 0": Text(lambda done: 0.9 if done < 0.5 else 0.0),
    "0, 0.9": Text(lambda done: 0.0 if done < 0.5 else 0.9),
    "lookup": Text(steady(0.0), 0.0, LOOKUP, ("prompt-lookup",)),
    "poor": Text(steady(0.0), 0.0, {0.5: (0.4, 0.1)}, ("prompt-lookup",)),
    "both": Text(steady(0.6), 0.0, LOOKUP, ("prompt-lookup", "model")),
}


def rounds_of(policy, text, machine, generator, live):
    """Yields the record of each round of one text, and the plain passes that it truly took."""
    policy.update(RoundStats(0, 0, 1, 0, 30.0, 0, 30.0, PROMPT, reason="prefill"))
    done, last_size, pace = 1, PROMPT, 1.0
    while done < NUM_TOKENS:
        source, match, declined, chances, drafting = text.sources[-1], None, None, [], 0.0
        plan = None
        found = text.match(generator)
        if found is not None:
            plan = policy.plan(text.sources[0], found[0])
            if plan.length:
                source, match, chances = text.sources[0], found[0], [found[1]] * plan.length
            else:
                declined = (text.sources[0], found[0], generator.random() < found[1])
        if not chances and "model" in text.sources:
            plan = policy.plan("model")
            for chance in text.candidates(done / NUM_TOKENS, generator)[: plan.length]:
                chances.append(chance)
                drafting += STEP
                if plan.wants_confidence and plan.ends_after(chances):
                    break
        drafted = len(chances)
        accepted = next((i for i, p in enumerate(chances) if generator.random() >= p), drafted)
        size = policy.pass_size(drafted + 1)
        passing = machine.passes[size] + (machine.change if size != last_size else 0.0)
        if generator.random() < machine.jumps:
            pace = 2.0 / pace
        seen = [pace * machine.disturb(seconds, generator) for seconds in (drafting, passing)]
        stats = RoundStats(
            num_drafted=drafted,
            num_accepted=accepted,
            num_generated=accepted + 1,
            draft_seconds=seen[0],
            verify_seconds=seen[1],
            rollback_seconds=0.0,
            seconds=sum(seen),
            pass_tokens=size,
            source=source,
            planned=plan.length if plan else 0,
            reason=plan.reason if plan else "unmatched",
            confidences=tuple(chances) if plan and plan.wants_confidence else (),
            match_confidence=match,
            cached_tokens=PROMPT + done,
            draft_pass_tokens=drafted if drafting else 0,
            declined=declined,
        )
        policy.update(stats)
        live.learn(step_of(stats))
        last_size, done = size, done + accepted + 1
        yield stats, drafting + passing


def planner_speed(machine: Machine, text: Text, seed: int) -> float:
    """Tokens per plain pass of some texts in a fresh process with a kept curve."""
    generator = Random(seed)
    live, common = LiveCurve(machine.measured(generator)), Common()
    tokens = seconds = 0.0
    for _ in range(NUM_TEXTS):
        policy = AdaptiveLength(text.sources, live, common)
        for stats, spent in rounds_of(policy, text, machine, generator, live):
            tokens += stats.num_generated
            seconds += spent
    return tokens / seconds


def constant_speed(machine: Machine, text: Text, length: int) -> float:
    """Tokens per plain pass to expect of a constant length."""

    def tokens(acceptance: float) -> float:
        return list(accumulate(acceptance**n for n in range(length + 1)))[-1]

    found = sum(share for share, _ in text.matches.values())
    matched = sum(share * tokens(p) for share, p in text.matches.values())
    times = []
    for half in (0.25, 0.75):
        if "model" in text.sources:
            new = matched + (1.0 - found) * tokens(text.acceptance(half))
            spent = machine.passes[length + 1] + (1.0 - found) * length * STEP
        else:
            new = matched + (1.0 - found)
            spent = found * machine.passes[length + 1] + (1.0 - found) * machine.passes[1]
            spent += 2 * found * (1.0 - found) * machine.change * (length > 0)
        times.append(spent / new)
    return 2.0 / sum(times)


def compare(curve: str, change: float, label: str, seeds: int = 20) -> tuple[float, float, int]:
    """The planner's speed over the best constant length's and over plain; and that length."""
    machine, text = Machine.of(curve, change), TEXTS[label]
    own = median(planner_speed(machine, text, seed) for seed in range(seeds))
    speeds = {n: constant_speed(machine, text, n) for n in LENGTHS}
    best = max(speeds, key=speeds.__getitem__)
    return own / speeds[best], own / speeds[0], best


@click.command()
def simulation() -> None:
    """Compare the planner with the best constant length on simulated machines."""
    click.echo(" " * 12 + "".join(f"{label:>10}" for label in TEXTS))
    for curve in CURVES:
        for change in CHANGES:
            row = [compare(curve, change, label) for label in TEXTS]
            cells = "".join(f"{ratio:7.3f}@{best:<2}" for ratio, _, best in row)
            click.echo(f"{curve:8}{change:4}" + cells)
