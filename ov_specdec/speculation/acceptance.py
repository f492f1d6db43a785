"""How often candidates are accepted: of one sequence, and of those before it."""

from collections.abc import Hashable
from dataclasses import dataclass, field

from ov_specdec.stats import RoundStats

MODEL_PRIOR = 0.7
"""Probability that a draft model's candidate is accepted, before anything is known.

Pairs that people use reach 0.5 to 0.9. Lookup gives one by the length of its match.
"""
PRIOR_WEIGHT = 4.0
"""Candidates that it takes to outweigh that: a first text settles within ten rounds."""

COMMON_WEIGHT = 32.0
"""Candidates of a sequence that count as much as all sequences before: some tens are believed."""

MEMORY = 0.98
"""What is left of a sequence's counts after each draft: the last 30 count, as texts change."""

COMMON_MEMORY = 0.998
"""The same for what all sequences share: the last 500."""

GROUPS = (1, 1, 2, 4, 8)
"""Places that are counted together: the first, the second, the next two, four and eight."""

NUM_BINS = 8
"""Of confidence, each believed by itself: finer ones stay empty."""


class Counts:
    """Candidates that were judged, and those of them that were accepted, by some key."""

    def __init__(self, memory: float) -> None:
        self._memory = memory
        self._judged: dict[Hashable, float] = {}
        self._accepted: dict[Hashable, float] = {}

    def share(self, key: Hashable, expected: float, weight: float) -> float:
        """The share that was accepted, shrunk towards `expected` as if `weight` more had it."""
        judged, accepted = self._judged.get(key, 0.0), self._accepted.get(key, 0.0)
        return (accepted + weight * expected) / (judged + weight)

    def add(self, key: Hashable, accepted: bool) -> None:
        """Count one candidate."""
        self._judged[key] = self._memory * self._judged.get(key, 0.0) + 1.0
        self._accepted[key] = self._memory * self._accepted.get(key, 0.0) + accepted


@dataclass
class Common:
    """What sequences of one kind, greedy ones for example, have in common.

    credit: seconds of the cost curve that may go into trying again what does not pay.
    """

    places: Counts = field(default_factory=lambda: Counts(COMMON_MEMORY))
    bins: Counts = field(default_factory=lambda: Counts(COMMON_MEMORY))
    credit: float = 0.0


class Acceptance:
    """The acceptance of one sequence, by source, confidence in the match, and place in the draft.

    Places differ: text that is easy to guess comes in runs, so a candidate after three accepted
    ones is likelier to be accepted than the first one. What is known of a place in this sequence
    beyond what its kind had is expected of the next place too.
    """

    def __init__(self, common: Common) -> None:
        self._common = common
        self._places = Counts(MEMORY)

    def by_place(self, source: str, match: float | None, length: int) -> list[float]:
        """The probability that a candidate is accepted if those before it are, by place."""
        usual = MODEL_PRIOR if match is None else match
        expected, result = usual, list[float]()
        for group, size in enumerate(GROUPS):
            key = source, match, group
            known = self._common.places.share(key, usual, PRIOR_WEIGHT)
            expected = min(max(expected + known - usual, 0.0), 1.0)
            usual, expected = known, self._places.share(key, expected, COMMON_WEIGHT)
            result += [expected] * size
        return result[:length]

    def calibrated(self, confidence: float) -> float:
        """The same of a candidate that its source gives this probability.

        A confidence that nothing is known of is worth what others are: where greedy drafts give
        their candidates 0.25, nineteen of twenty were accepted.
        """
        usual = self._common.bins.share(None, MODEL_PRIOR, PRIOR_WEIGHT)
        return self._common.bins.share(_bin(confidence), usual, PRIOR_WEIGHT)

    def learn(self, stats: RoundStats) -> None:
        """Count a round's candidates up to the first rejected one; none after it was judged."""
        for place in range(min(stats.num_accepted + 1, stats.num_drafted)):
            accepted = place < stats.num_accepted
            self._add((stats.source, stats.match_confidence, place.bit_length()), accepted)
            if stats.confidences and stats.match_confidence is None:
                for key in (None, _bin(stats.confidences[place])):
                    self._common.bins.add(key, accepted)
        if stats.declined is not None:
            source, match, accepted = stats.declined
            self._add((source, match, 0), accepted)

    def _add(self, key: Hashable, accepted: bool) -> None:
        self._places.add(key, accepted)
        self._common.places.add(key, accepted)


def _bin(confidence: float) -> int:
    return min(int(confidence * NUM_BINS), NUM_BINS - 1)
