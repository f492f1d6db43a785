"""How often draft tokens are accepted: of one sequence, and of those before it."""

from collections.abc import Hashable
from dataclasses import dataclass, field

from ov_specdec.stats import RoundStats

MODEL = "model"
"""The source that is a draft model."""

MODEL_PRIOR = 0.7
"""Probability that a draft model's token is accepted, before anything is known.

Pairs that people use reach 0.5 to 0.9; on simulated machines 0.8 is as good. Lookup gives one by
the length of its match.
"""
PRIOR_WEIGHT = 4.0
"""Draft tokens that it takes to outweigh that: a first text settles within ten rounds."""

COMMON_WEIGHT = 24.0
"""Draft tokens of a sequence that count as much as all sequences before.

With 32, eight sequences of which half have no draft accepted had 0.95 of the speed: the last 50
draft tokens never outweigh the others. With 16, a text that is easy to guess from its middle on had
0.93, since little is tried again.
"""

MEMORY = 0.98
"""What is left of a sequence's counts after each draft token: the last 50 count, as texts change.

On recorded drafts 0.96 to 0.995 are as good.
"""

COMMON_MEMORY = 0.998
"""The same for what all sequences share: the last 500."""

NUM_FIRST = 8
"""Tokens of an output where what a draft model drafts tells little of later ones."""

FIRST_WEIGHT = 0.5
"""For so many draft tokens each of those counts. After 43 short code prompts the embedded draft has
0.70 of its draft tokens accepted in the first four places, 0.77 in the next four, 0.93 later on,
and how many in the first eight hardly tells how many later (correlation 0.4). With 0.25 two
sequences, of which 0.8 are accepted, had 0.974 of the speed; with 0.5 they have 0.987.
"""

NUM_BINS = 8
"""Of confidence, each believed by itself: finer ones stay empty."""


class Counts:
    """Draft tokens that were judged, and those of them that were accepted, by some key."""

    def __init__(self, memory: float) -> None:
        self._memory = memory
        self._judged: dict[Hashable, float] = {}
        self._accepted: dict[Hashable, float] = {}

    def share(self, key: Hashable, expected: float, weight: float) -> float:
        """The share that was accepted, shrunk towards `expected` as if `weight` more had it."""
        judged, accepted = self._judged.get(key, 0.0), self._accepted.get(key, 0.0)
        return (accepted + weight * expected) / (judged + weight)

    def judged(self, key: Hashable) -> float:
        """How many were counted, the older ones in part."""
        return self._judged.get(key, 0.0)

    def add(self, key: Hashable, accepted: bool, weight: float = 1.0) -> None:
        """Count one draft token, for so many."""
        self._judged[key] = self._memory * self._judged.get(key, 0.0) + weight
        self._accepted[key] = self._memory * self._accepted.get(key, 0.0) + weight * accepted


@dataclass
class Common:
    """What sequences of one kind, greedy ones for example, have in common."""

    sources: Counts = field(default_factory=lambda: Counts(COMMON_MEMORY))
    bins: Counts = field(default_factory=lambda: Counts(COMMON_MEMORY))


class Acceptance:
    """The acceptance of one sequence, by source and confidence in the match."""

    def __init__(self, common: Common) -> None:
        self._common = common
        self._own = Counts(MEMORY)
        self._num_generated = 0

    def rate(self, source: str, match: float | None) -> float:
        """The probability that a draft token is accepted if those before it are."""
        usual = self._usual(source, match)
        return self._own.share((source, match), usual, COMMON_WEIGHT)

    def calibrated(self, confidence: float) -> float:
        """The same of a draft token that its draft model gives this probability.

        A confidence that nothing is known of is worth what others are: where greedy drafts give
        their draft tokens 0.25, nineteen of twenty were accepted.
        """
        usual = self._usual(MODEL, None)
        return self._common.bins.share(_bin(confidence), usual, PRIOR_WEIGHT)

    def is_open(self, source: str) -> bool:
        """Whether little is known of a source, of other sequences either, and nothing bad."""
        judged = self._common.sources.judged((source, None))
        return judged < COMMON_WEIGHT and self._usual(source, None) > MODEL_PRIOR / 2

    def learn(self, stats: RoundStats) -> None:
        """Count a round's draft tokens up to the first rejected one; none after it was judged."""
        is_early = stats.source == MODEL and self._num_generated < NUM_FIRST
        weight = FIRST_WEIGHT if is_early else 1.0
        self._num_generated += stats.num_generated
        for place in range(min(stats.num_accepted + 1, stats.num_drafted)):
            accepted = place < stats.num_accepted
            self._add((stats.source, stats.match_confidence), accepted, weight)
            if stats.confidences and stats.match_confidence is None:
                self._common.bins.add(_bin(stats.confidences[place]), accepted, weight)
        if stats.declined is not None:
            source, match, accepted = stats.declined
            self._add((source, match), accepted)

    def _usual(self, source: str, match: float | None) -> float:
        prior = MODEL_PRIOR if match is None else match
        return self._common.sources.share((source, match), prior, PRIOR_WEIGHT)

    def _add(self, key: Hashable, accepted: bool, weight: float = 1.0) -> None:
        self._own.add(key, accepted, weight)
        self._common.sources.add(key, accepted, weight)


def _bin(confidence: float) -> int:
    return min(int(confidence * NUM_BINS), NUM_BINS - 1)
