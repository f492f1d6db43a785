"""Simulated machines that many sequences share: what one budget over all of them brings.

python -m tests.many        # all machines and mixtures; the tests try some of them
"""

from dataclasses import replace
from random import Random
from statistics import median

import numpy as np

from ov_specdec.costs import SIZES, CostCurve, LiveCurve, PassCurve
from ov_specdec.speculation.acceptance import Common
from ov_specdec.speculation.adaptive import AdaptiveLength
from ov_specdec.speculation.budget import Load, share
from ov_specdec.speculation.draft_length import Ask
from ov_specdec.stats import PassStats, RoundStats, StepStats

CURVES = {
    "flat": {1: 1.0, 512: 1.0},
    "linear": {1: 1.0, 17: 3.4, 512: 77.0},
    "avx2": {1: 1.0, 2: 1.4, 3: 1.7, 5: 2.9, 9: 4.1, 17: 7.0, 512: 208.0},
}
"""Plain passes that a pass of the main model over so many tokens takes."""

DRAFT = 0.1, 0.02
"""Plain passes that a pass of the draft model takes, and each sequence in it more."""

MIXTURES = {
    "0.0": [0.0],
    "0.5": [0.5],
    "0.8": [0.8],
    "0.95": [0.95],
    "0.3, 0.9": [0.3, 0.9],
    "0, 0.95": [0.0, 0.95],
    "all": [0.0, 0.3, 0.6, 0.8, 0.9, 0.95],
}
"""How often candidates are accepted, by sequence in turns."""

LENGTHS = 0, 1, 2, 3, 4, 6, 8
NUM_STEPS = 120
CACHED = 256


def passes_of(curve):
    sizes, seconds = zip(*CURVES[curve].items(), strict=True)
    return np.interp(range(513), sizes, seconds)


def costs_of(curve, concurrency):
    """What measuring one sequence finds: several cost more, which passes that run have to show."""
    row = {size: passes_of(curve)[size] for size in SIZES}
    return LiveCurve(
        CostCurve(
            PassCurve({16: row}), PassCurve({16: {1: DRAFT[0], 16: DRAFT[0] + 15 * DRAFT[1]}})
        )
    )


def step_seconds(passes, lengths):
    """What a step takes in which sequences draft so many tokens."""
    drafting = [
        DRAFT[0] + (sum(n > depth for n in lengths) - 1) * DRAFT[1] for depth in range(max(lengths))
    ]
    return float(passes[len(lengths) + sum(lengths)]), drafting


def run(curve, mixture, concurrency, choose, seed):
    """Tokens per plain pass. choose: the lengths of a step, told of the rounds before."""
    generator, passes = Random(seed), passes_of(curve)
    acceptance = [MIXTURES[mixture][i % len(MIXTURES[mixture])] for i in range(concurrency)]
    tokens = seconds = 0.0
    rounds = None
    for step in range(NUM_STEPS):
        lengths = choose(rounds)
        main, drafting = step_seconds(passes, lengths)
        rounds = []
        for length, chance in zip(lengths, acceptance, strict=True):
            accepted = next((i for i in range(length) if generator.random() >= chance), length)
            rounds.append((length, accepted))
            tokens += accepted + 1
        seconds += main + sum(drafting)
        choose.costs and choose.costs.learn(
            StepStats(
                PassStats(
                    concurrency + sum(lengths),
                    CACHED,
                    concurrency,
                    0,
                    main * generator.gauss(1, 0.05),
                ),
                tuple(
                    PassStats(
                        sum(n > d for n in lengths), CACHED, sum(n > d for n in lengths), 0, s
                    )
                    for d, s in enumerate(drafting)
                ),
            )
        )
    return tokens / seconds


class Constant:
    costs = None

    def __init__(self, length, concurrency):
        self._lengths = [length] * concurrency

    def __call__(self, rounds):
        return self._lengths


class Shared:
    """The planner of all sequences."""

    def __init__(self, curve, concurrency):
        self.costs = costs_of(curve, concurrency)
        common = Common()
        self._policies = [
            AdaptiveLength(("model",), self.costs, common) for _ in range(concurrency)
        ]
        for policy in self._policies:
            policy.update(RoundStats(0, 0, 1, 0, 1.0, 0, 1.0, CACHED, reason="prefill"))
        self._plans = []

    def __call__(self, rounds):
        if rounds is not None:
            for policy, plan, (drafted, accepted) in zip(
                self._policies, self._plans, rounds, strict=True
            ):
                policy.update(
                    RoundStats(
                        num_drafted=drafted,
                        num_accepted=accepted,
                        num_generated=accepted + 1,
                        draft_seconds=0.0,
                        verify_seconds=1.0,
                        rollback_seconds=0.0,
                        seconds=1.0,
                        pass_tokens=drafted + 1,
                        source="model" if drafted else "",
                        planned=plan.length,
                        reason=plan.reason,
                        cached_tokens=CACHED,
                        draft_pass_tokens=drafted,
                        num_sequences=len(rounds),
                    )
                )
        # Its drafts have no confidence, so that the length alone ends them.
        bids = [replace(policy.bid(Ask("model")), acceptance=None) for policy in self._policies]
        load = Load(len(bids), len(bids), CACHED)
        self._plans = share(bids, load, self.costs)
        return [plan.length for plan in self._plans]


def compare(curve, mixture, concurrency, seeds=5):
    """The planner's speed over that of the best constant length; and that length."""
    own = median(
        run(curve, mixture, concurrency, Shared(curve, concurrency), seed) for seed in range(seeds)
    )
    speeds = {
        n: median(
            run(curve, mixture, concurrency, Constant(n, concurrency), seed)
            for seed in range(seeds)
        )
        for n in LENGTHS
    }
    best = max(speeds, key=speeds.__getitem__)
    return own / speeds[best], best


def main():
    print(" " * 12 + "".join(f"{label:>12}" for label in MIXTURES))
    for curve in CURVES:
        for concurrency in (1, 2, 4, 8, 16, 32):
            row = [compare(curve, label, concurrency) for label in MIXTURES]
            print(
                f"{curve:8}{concurrency:4}"
                + "".join(f"{ratio:9.3f}@{best:<2}" for ratio, best in row),
                flush=True,
            )


if __name__ == "__main__":
    main()
