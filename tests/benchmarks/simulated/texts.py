"""Made-up texts, one at a time: how near the planner comes to the best constant length."""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import accumulate
from random import Random
from statistics import median

from ov_specdec.engine.round import declined
from ov_specdec.planning.acceptance import Counts
from ov_specdec.planning.costs import SIZES, CostCurve, LiveCurve, PassCurve
from ov_specdec.planning.draft_length import AdaptiveLength, Offer, Offers, Plan
from ov_specdec.planning.planner import Planner
from tests.benchmarks.simulated.machine import (
    Drafted,
    Machine,
    against_constant,
    main_curve,
    rounds_of,
)

CHANGES = (0.0, 0.3, 1.0)
"""Plain passes that a pass takes longer if its size is another than that of the last one."""

STEP = 0.1
"""Plain passes that the draft model takes for a token."""

LENGTHS = (0, *range(2, 13))
NUM_TEXTS = 4


@dataclass(frozen=True)
class MadeUp:
    """What draft tokens are worth. Implements `Text`.

    acceptance: probability that a token of the draft model is accepted, by the share of the
    text that is done. spread: how much tokens differ, 0 to 1, which the draft model knows; the
    mean is the same. matches: by their confidence, the share of places that have one, and the
    acceptance of their tokens. sources: who drafts.
    """

    acceptance: Callable[[float], float]
    spread: float = 0.0
    matches: dict[float, tuple[float, float]] = field(default_factory=dict)
    sources: tuple[str, ...] = ("model",)
    prompt: int = 100
    size: int = 256

    def draft(self, done: int, plan: Callable[[Offers], Plan], generator: Random) -> Drafted:
        """See `Text`."""
        found, offers = self.match(generator), list[Offer]()
        if found is not None:
            confidence, acceptance = found
            first = generator.random() < acceptance
            offers.append(Offer(self.sources[0], confidence, int(first)))
        if "model" in self.sources:
            offers.append(Offer("model"))
        if not offers:
            return Drafted(source=self.sources[-1])
        planned = plan(tuple(offers))
        if planned.length and planned.offer.source == self.sources[0] != "model":
            rest = self.accepted([acceptance] * (planned.length - 1), generator)
            given = {"source": self.sources[0], "match_confidence": confidence}
            return Drafted(planned.length, first * (1 + rest), planned, **given)
        chances = self.chances(done / self.size, generator)[: planned.length]
        ends = (n for n, chance in enumerate(chances, 1) if chance < planned.min_confidence)
        chances = chances[: next(ends, None)]
        return Drafted(
            *(len(chances), self.accepted(chances, generator), planned, self.sources[-1]),
            takes_passes=True,
            confidences=tuple(chances) if planned.min_confidence else (),
            declined=declined(planned, offers, 1),
        )

    def chances(self, done: float, generator: Random) -> list[float]:
        """The probability of each draft token, which is the draft model's confidence too."""
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

    @staticmethod
    def accepted(chances: list[float], generator: Random) -> int:
        """How many tokens of such a draft are accepted."""
        return next((i for i, p in enumerate(chances) if generator.random() >= p), len(chances))


def steady(acceptance: float) -> Callable[[float], float]:
    """The same all over a text."""
    return lambda done: acceptance


LOOKUP = {0.5: (0.3, 0.15), 0.75: (0.2, 0.8)}
"""Short matches that are worth little, and long ones that are worth much."""

TEXTS = {
    **{f"{p}": MadeUp(steady(p)) for p in (0.0, 0.2, 0.4, 0.6, 0.8, 0.95, 1.0)},
    **{f"~{p}": MadeUp(steady(p), 0.6) for p in (0.3, 0.6, 0.8)},
    "0.9, 0": MadeUp(lambda done: 0.9 if done < 0.5 else 0.0),
    "0, 0.9": MadeUp(lambda done: 0.0 if done < 0.5 else 0.9),
    "lookup": MadeUp(steady(0.0), 0.0, LOOKUP, ("prompt-lookup",)),
    "poor": MadeUp(steady(0.0), 0.0, {0.5: (0.4, 0.1)}, ("prompt-lookup",)),
    "both": MadeUp(steady(0.6), 0.0, LOOKUP, ("prompt-lookup", "model")),
}


def machine_of(curve: str, change: float) -> Machine:
    """One with noise, outliers and jumps of its pace."""
    costs = CostCurve(main_curve(curve, change), PassCurve({1: STEP}))
    return Machine(costs, noise=0.05, outliers=0.02, jumps=0.01)


def measured(machine: Machine, generator: Random) -> LiveCurve:
    """Its curve, as far as measuring finds it."""
    row = machine.curve.main.seconds
    found = {n: row[n] * generator.gauss(1.0, machine.noise / 2) for n in SIZES}
    return LiveCurve(CostCurve(PassCurve(found, machine.curve.main.change), machine.curve.draft))


def planner_speed(machine: Machine, text: MadeUp, seed: int) -> float:
    """Tokens per plain pass of some texts in a fresh process with a kept curve."""
    generator = Random(seed)
    costs, common = measured(machine, generator), Counts()
    planner = Planner(costs)
    tokens = seconds = 0.0
    for _ in range(NUM_TEXTS):
        policy = AdaptiveLength(common, costs)
        for stats, spent in rounds_of(planner, policy, text, machine, generator):
            tokens += stats.num_generated
            seconds += spent
    return tokens / seconds


def constant_speed(machine: Machine, text: MadeUp, length: int) -> float:
    """Tokens per plain pass to expect of a constant length."""

    def tokens(acceptance: float) -> float:
        return list(accumulate(acceptance**n for n in range(length + 1)))[-1]

    passes = machine.curve.main.seconds
    found = sum(share for share, _ in text.matches.values())
    matched = sum(share * tokens(p) for share, p in text.matches.values())
    times = []
    for half in (0.25, 0.75):
        if "model" in text.sources:
            new = matched + (1.0 - found) * tokens(text.acceptance(half))
            spent = passes[length + 1] + (1.0 - found) * length * STEP
        else:
            new = matched + (1.0 - found)
            spent = found * passes[length + 1] + (1.0 - found) * passes[1]
            spent += 2 * found * (1.0 - found) * machine.curve.main.change * (length > 0)
        times.append(spent / new)
    return 2.0 / sum(times)


def compare(curve: str, change: float, label: str, seeds: int = 20) -> dict[str, float]:
    """The planner against constant lengths."""
    machine, text = machine_of(curve, change), TEXTS[label]
    own = median(planner_speed(machine, text, seed) for seed in range(seeds))
    return against_constant(own, {n: constant_speed(machine, text, n) for n in LENGTHS})
