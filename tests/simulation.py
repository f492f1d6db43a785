"""Simulated machines and texts, without a clock: how near a policy comes to the best constant one.

python -m tests.simulation        # the table of all machines and texts
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from statistics import median

import numpy as np

from ov_specdec.costs import SIZES, CostCurve, LiveCurve, PassCurve
from ov_specdec.speculation.draft_length import ConstantLength
from ov_specdec.stats import RoundStats

FLAT = {1: 1.0, 17: 1.0}
LINEAR = {1: 1.0, 17: 3.4}
STEPPED = {1: 1.0, 4: 1.0, 5: 1.6, 8: 1.6, 9: 2.6, 16: 2.6, 17: 4.0}
AVX2 = {1: 1.0, 2: 1.4, 3: 1.7, 5: 2.9, 9: 4.1, 17: 7.0}
"""Plain passes that a pass over so many tokens takes; linear between them."""

CURVES = {"flat": FLAT, "linear": LINEAR, "stepped": STEPPED, "avx2": AVX2}
CHANGES = (0.0, 0.3, 1.0)


@dataclass
class Machine:
    """What passes take, in plain passes. change: added by a pass of another size than the last.

    outliers: the share of passes that take ten times as long. jumps: the share of rounds at which
    the pace changes, by two. noise: relative deviation of every pass.
    """

    passes: dict[int, float]
    change: float
    step: float = 0.1
    outliers: float = 0.0
    jumps: float = 0.0
    noise: float = 0.03
    pace: float = 1.0

    def __post_init__(self) -> None:
        sizes = range(129)
        self._seconds = np.interp(sizes, list(self.passes), list(self.passes.values())).tolist()

    def pass_seconds(self, size: int) -> float:
        return self._seconds[size]

    def curve(self, generator, noise=0.03) -> CostCurve:
        """As it would be measured."""
        row = {n: self.pass_seconds(n) * generator.gauss(1.0, noise) for n in SIZES}
        draft = {1: self.step}
        return CostCurve(PassCurve({0: row}, self.change), PassCurve({0: draft}))

    def run(self, seconds: float, generator) -> float:
        if generator.random() < self.jumps:
            self.pace = 2.0 if self.pace == 1.0 else 1.0
        slower = 10.0 if generator.random() < self.outliers else 1.0
        return seconds * self.pace * slower * max(generator.gauss(1.0, self.noise), 0.5)


@dataclass(frozen=True)
class Text:
    """What candidates are worth, by the place of the text where they are drafted.

    acceptance: mean probability that a candidate of the draft model is accepted, by the share of
    the text that is done. spread: how much it varies from candidate to candidate, 0 to 1.
    matches: share of the places where a match is found, by its confidence, and the acceptance of
    all its candidates.
    """

    acceptance: Callable[[float], float]
    spread: float = 0.5
    matches: dict[float, tuple[float, float]] = field(default_factory=dict)

    def candidates(self, done: float, generator) -> list[float]:
        """The probability of each candidate; a draft model knows it, as its confidence."""
        mean = self.acceptance(done)
        if not 0.0 < mean < 1.0 or self.spread == 0.0:
            return [mean] * 16
        weight = 1.0 / self.spread - 1.0 + 1e-3
        alpha, beta = mean * weight, (1.0 - mean) * weight
        return [generator.betavariate(alpha, beta) for _ in range(16)]

    def match(self, generator) -> tuple[float, float] | None:
        """Confidence and acceptance of the match at a place, if there is one."""
        chance = generator.random()
        for confidence, (share, acceptance) in self.matches.items():
            chance -= share
            if chance < 0:
                return confidence, acceptance
        return None


def steady(acceptance):
    return lambda done: acceptance


def generate(policy, machine, text, num_tokens, generator, *, sources=("model",), prompt=100):
    """One generation after its prefill; the records of its rounds."""
    policy.update(RoundStats(0, 0, 1, 0, 30.0, 0, 30.0, prompt, reason="prefill"))
    rounds, done, last_size = [], 1, prompt
    while done < num_tokens:
        draft_seconds, declined, plan, drafted, source, match = (
            0.0,
            None,
            None,
            0,
            sources[-1],
            None,
        )
        confidences = ()
        found = text.match(generator) if "prompt-lookup" in sources else None
        chances = []
        if found is not None:
            plan = policy.plan("prompt-lookup", found[0])
            if plan.length:
                source, match, drafted = "prompt-lookup", found[0], plan.length
                chances = [found[1]] * drafted
            else:
                declined = ("prompt-lookup", found[0], bool(generator.random() < found[1]))
        if not drafted and "model" in sources:
            plan = policy.plan("model")
            for chance in text.candidates(done / num_tokens, generator)[: plan.length]:
                chances.append(chance)
                draft_seconds += machine.step
                if plan.wants_confidence and plan.ends_after(chances):
                    break
            drafted = len(chances)
            confidences = tuple(chances)
        elif not drafted:
            source, match = "prompt-lookup", None
        accepted = 0
        while accepted < drafted and generator.random() < chances[accepted]:
            accepted += 1
        size = policy.pass_size(drafted + 1)
        seconds = machine.pass_seconds(size) + (machine.change if size != last_size else 0.0)
        draft_seconds = machine.run(draft_seconds, generator)
        seconds = machine.run(seconds, generator)
        if declined is not None and source == "prompt-lookup":
            match = declined[1]
        stats = RoundStats(
            drafted, accepted, accepted + 1, draft_seconds, seconds, 0.0, seconds + draft_seconds,
            size, source, plan.length if plan else 0, plan.reason if plan else "unmatched",
            confidences if plan and plan.wants_confidence else (), match, prompt + done,
            drafted, sum(plan.expected[:drafted]) if plan else 0.0, declined,
        )  # fmt: skip
        policy.update(stats)
        rounds.append(stats)
        last_size, done = size, done + accepted + 1
    return rounds


def seconds_per_token(rounds):
    return sum(r.seconds for r in rounds) / sum(r.num_generated for r in rounds)


def compare(make, machine, text, *, seeds=20, texts=4, num_tokens=256, sources=("model",)):
    """Per seed, the speed of `make`'s policies over that of the best constant length, and plain.

    make: from a curve to a function that makes the policy of each text of a process.
    """
    lengths = (0, *range(2, 13))
    speeds = {n: [] for n in (*lengths, "own")}
    for seed in range(seeds):
        for which in speeds:
            generator = Random(2 * seed + (which == "own"))
            here = replace(machine)
            next_policy = (
                make(machine.curve(Random(seed)), sources)
                if which == "own"
                else partial(ConstantLength, which)
            )
            rounds = [
                r
                for _ in range(texts)
                for r in generate(next_policy(), here, text, num_tokens, generator, sources=sources)
            ]
            # The pace changes what a second is worth; times are compared without it and outliers.
            speeds[which].append(1.0 / seconds_per_token(rounds))
    best = max(lengths, key=lambda n: median(speeds[n]))
    own = median(speeds["own"])
    return own / median(speeds[best]), own / median(speeds[0]), best


def adaptive(curve, sources):
    from ov_specdec.speculation.acceptance import Common
    from ov_specdec.speculation.adaptive import AdaptiveLength

    common = Common()
    return lambda: AdaptiveLength(sources, LiveCurve(curve), common)


TEXTS = {
    **{f"{p}": Text(steady(p), 0.0) for p in (0.0, 0.2, 0.4, 0.6, 0.8, 0.95, 1.0)},
    **{f"{p} spread": Text(steady(p), 0.6) for p in (0.3, 0.6, 0.8)},
    "0.9 then 0": Text(lambda done: 0.9 if done < 0.5 else 0.0, 0.0),
    "0 then 0.9": Text(lambda done: 0.0 if done < 0.5 else 0.9, 0.0),
}


def one(case):
    name, change, label = case
    return case, compare(adaptive, Machine(CURVES[name], change), TEXTS[label], seeds=SEEDS)


SEEDS = 9


def main():
    from multiprocessing import Pool

    cases = [(n, c, t) for n in CURVES for c in CHANGES for t in TEXTS]
    with Pool(2) as pool:
        results = dict(pool.map(one, cases, chunksize=4))
    print(" " * 12 + " ".join(f"{t[:8]:>9}" for t in TEXTS))
    for name in CURVES:
        for change in CHANGES:
            row = [results[name, change, t] for t in TEXTS]
            print(
                f"{name:8}{change:4}" + " ".join(f"{b:6.3f}@{n:<2}" for b, _, n in row), flush=True
            )
    print("worst", min(b for b, _, _ in results.values()))


if __name__ == "__main__":
    main()
