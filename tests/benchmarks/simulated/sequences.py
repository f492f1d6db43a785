"""Many sequences that share a machine's passes: what one budget over all of them brings."""

from random import Random
from statistics import median

from ov_specdec.planning.acceptance import Counts
from ov_specdec.planning.costs import SIZES, CostCurve, LiveCurve, PassCurve
from ov_specdec.planning.draft_length import AdaptiveLength, Offer
from ov_specdec.planning.planner import Load, Planner
from ov_specdec.results.stats import PassStats, RoundStats, StepStats
from tests.benchmarks.simulated.machine import against_constant, main_curve
from tests.support.rounds import a_round

CURVES = ("flat", "linear", "avx2")
DRAFT = 0.1, 0.02
"""Plain passes that a pass of the draft model takes, and that each sequence more in it adds."""

MIXTURES = {
    "0.0": [0.0],
    "0.5": [0.5],
    "0.8": [0.8],
    "0.95": [0.95],
    "0.3, 0.9": [0.3, 0.9],
    "0, 0.95": [0.0, 0.95],
    "all": [0.0, 0.3, 0.6, 0.8, 0.9, 0.95],
}
"""How often draft tokens are accepted, by sequence in turns."""

LENGTHS = 0, 1, 2, 3, 4, 6, 8
CONCURRENCIES = 2, 4, 8, 16, 32
NUM_STEPS, CACHED = 120, 256


class Machine:
    """What steps take, in plain passes."""

    def __init__(self, curve):
        self._passes = main_curve(curve, sizes=512).seconds

    def measured(self):
        """The curve of one sequence: what several cost has to show when they run."""
        main = {size: self._passes[size] for size in SIZES}
        draft = {size: DRAFT[0] + (size - 1) * DRAFT[1] for size in (1, 16)}
        return LiveCurve(CostCurve(PassCurve(main), PassCurve(draft)))

    def step(self, lengths, noise):
        """A step in which sequences draft so many tokens. noise: of what is measured."""
        num_tokens = len(lengths) + sum(lengths)
        drafting = [sum(n > depth for n in lengths) for depth in range(max(lengths))]
        return StepStats(
            PassStats(num_tokens, len(lengths), 0, self._passes[num_tokens] * noise),
            tuple(PassStats(n, n, 0, DRAFT[0] + (n - 1) * DRAFT[1]) for n in drafting),
        )


class Constant:
    """The same length for everybody."""

    def __init__(self, length):
        self._length = length

    def lengths(self, concurrency):
        return [self._length] * concurrency

    def learn(self, step, rounds):
        pass


class Shared:
    """The planner of all sequences. before: the same of earlier ones, in the same process."""

    def __init__(self, machine, concurrency, before=None):
        self.costs = before.costs if before else machine.measured()
        self.common = before.common if before else Counts()
        self._policies = [AdaptiveLength(self.common, self.costs) for _ in range(concurrency)]
        for policy in self._policies:
            policy.update(RoundStats(0, 0, 1, 0, 1.0, 0, 1.0, CACHED, reason="prefill"))
        self.plans = []
        self._planner = Planner(self.costs)

    def lengths(self, concurrency):
        ask = (Offer("model"),)
        estimates = [policy.answer(ask) for policy in self._policies]
        load = Load(concurrency, concurrency, concurrency)
        self.plans = self._planner.plan(estimates, load)
        return [plan.length for plan in self.plans]

    def learn(self, step, rounds):
        self._planner.learn(step)
        for policy, plan, (drafted, accepted) in zip(
            self._policies, self.plans, rounds, strict=True
        ):
            stats = a_round(
                *(drafted, accepted),
                source="model" if drafted else "",
                planned=plan.length,
                reason=plan.reason,
                cached_tokens=CACHED,
                draft_pass_tokens=drafted,
                num_sequences=len(rounds),
            )
            policy.update(stats)


def speed(machine, mixture, concurrency, planner, seed):
    """Tokens per plain pass."""
    generator = Random(seed)
    chances = [MIXTURES[mixture][i % len(MIXTURES[mixture])] for i in range(concurrency)]
    tokens = seconds = 0.0
    for _ in range(NUM_STEPS):
        lengths = planner.lengths(concurrency)
        rounds = [
            (n, next((i for i in range(n) if generator.random() >= chance), n))
            for n, chance in zip(lengths, chances, strict=True)
        ]
        step = machine.step(lengths, noise=1.0)
        tokens += sum(accepted + 1 for _, accepted in rounds)
        seconds += step.main.seconds + sum(drafting.seconds for drafting in step.drafts)
        planner.learn(machine.step(lengths, noise=generator.gauss(1.0, 0.05)), rounds)
    return tokens / seconds


def planner_speed(machine, mixture, concurrency, seed):
    """The planner's, once sequences of the kind have been seen."""
    before = Shared(machine, concurrency)
    speed(machine, mixture, concurrency, before, seed + 1000)
    return speed(machine, mixture, concurrency, Shared(machine, concurrency, before), seed)


def compare(curve, mixture, concurrency, seeds=5):
    """The planner against constant lengths."""
    machine = Machine(curve)
    own = median(planner_speed(machine, mixture, concurrency, seed) for seed in range(seeds))
    speeds = {
        n: median(speed(machine, mixture, concurrency, Constant(n), seed) for seed in range(seeds))
        for n in LENGTHS
    }
    return against_constant(own, speeds)
