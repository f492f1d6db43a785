"""The outcomes of a random procedure, enumerated: every decision it can take, tried in turn."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

import numpy as np

from ov_specdec.sampling.distribution import Distribution, RandomDecisions
from ov_specdec.sampling.noise import Noise, uniform

Outcome = TypeVar("Outcome", bound=Hashable)


def enumerate_outcomes(run: Callable[[RandomDecisions], Outcome]) -> dict[Outcome, float]:
    """The probability of every outcome of `run`, which is called once for each way it can go.

    run: takes all of its chance from the random it is given, and begins afresh at each call.
    """
    probabilities: defaultdict[Outcome, float] = defaultdict(float)
    pending: list[tuple[int, ...]] = [()]
    while pending:
        random = _ReplaySource(pending.pop())
        outcome = run(random)
        probabilities[outcome] += random.probability
        pending += random.alternatives
    return dict(probabilities)


class _ReplaySource(RandomDecisions):
    """Repeats the decisions of a prefix, then takes the first possible one: a `RandomDecisions`.

    probability: of all that was decided. alternatives: prefixes that lead to the other decisions
    that were possible after the end of its own.
    """

    def __init__(self, prefix: Sequence[int]) -> None:
        self.probability = 1.0
        self.alternatives: list[tuple[int, ...]] = []
        self._prefix = prefix
        self._taken: list[int] = []

    def accept(self, probability: float) -> bool:
        return self._decide([1.0 - probability, probability]) == 1

    def draw(self, distribution: Distribution) -> int:
        return distribution.token(self._decide(distribution.probs.tolist()))

    def _decide(self, probabilities: Sequence[float]) -> int:
        """The index of what happens; what has no probability never does."""
        if min(probabilities) < 0.0 or not np.isclose(sum(probabilities), 1.0, rtol=0, atol=1e-12):
            raise ValueError(f"these are no probabilities: {probabilities}")
        if len(self._taken) < len(self._prefix):
            index = self._prefix[len(self._taken)]
        else:
            index, *others = (i for i, value in enumerate(probabilities) if value > 0.0)
            self.alternatives += [(*self._taken, other) for other in others]
        self._taken.append(index)
        self.probability *= probabilities[index]
        return index


def best_by_definition(distribution, seed, choice, position):
    """The token of the greatest log-probability plus Gumbel noise, and all of those sums."""
    ids = np.arange(len(distribution.probs)) if distribution.ids is None else distribution.ids
    numbers = uniform(Noise(seed, choice)._key(position), ids)
    with np.errstate(divide="ignore"):
        scores = np.log(distribution.probs) - np.log(-np.log1p(-numbers))
    return int(ids[scores.argmax()]), scores
