"""Estimates acceptance of draft tokens, from a sequence and from earlier ones."""

from collections.abc import Hashable
from dataclasses import dataclass, field

from ov_specdec.stats import RoundStats

MODEL = "model"
"""The name of the source draft model."""

MODEL_PRIOR = 0.7
"""Prior acceptance of a draft model's token.

Common pairs reach 0.5 to 0.9; on simulated machines 0.8 is equally good. Lookup has a prior by the
length of the match.
"""
PRIOR_WEIGHT = 4.0
"""Weight of the prior in draft tokens: estimates of a first text converge within ten rounds."""

COMMON_WEIGHT = 24.0
"""Weight of all earlier sequences, in draft tokens of the current one.

With 32, eight sequences, half of them with no accepted drafts, had 0.95 of the speed: the last 50
draft tokens never outweigh the others. With 16, a text that becomes predictable in its middle had
0.93, since little is retried.
"""

MEMORY = 0.98
"""Decay of a sequence's counts with each draft token: about the last 50 count, as texts change.

On recorded drafts 0.96 to 0.995 are equally good.
"""

COMMON_MEMORY = 0.998
"""The same for the counts of all sequences: the last 500."""

NUM_FIRST = 8
"""First tokens of an output, where a draft model's acceptance predicts little of the rest."""

FIRST_WEIGHT = 0.5
"""Weight of each of those draft tokens. After 43 short code prompts the embedded draft's acceptance
is 0.70 in the first four places, 0.77 in the next four, and 0.93 later; that of the first eight
hardly predicts the rest (correlation 0.4). With 0.25, two sequences with an acceptance of 0.8 had
0.974 of the speed; with 0.5 they have 0.987.
"""

NUM_BINS = 8
"""Number of bins of confidence, each with its own counts: finer ones stay empty."""


class Counts:
    """Decaying counts of verified and accepted draft tokens, by key."""

    def __init__(self, memory: float) -> None:
        self._memory = memory
        self._verified: dict[Hashable, float] = {}
        self._accepted: dict[Hashable, float] = {}

    def share(self, key: Hashable, expected: float, weight: float) -> float:
        """The accepted fraction, shrunk towards `expected` with this weight."""
        verified, accepted = self._verified.get(key, 0.0), self._accepted.get(key, 0.0)
        return (accepted + weight * expected) / (verified + weight)

    def verified(self, key: Hashable) -> float:
        """The decayed count of verified draft tokens."""
        return self._verified.get(key, 0.0)

    def add(self, key: Hashable, accepted: bool, weight: float = 1.0) -> None:
        """Count one draft token with this weight."""
        self._verified[key] = self._memory * self._verified.get(key, 0.0) + weight
        self._accepted[key] = self._memory * self._accepted.get(key, 0.0) + weight * accepted


@dataclass
class SharedCounts:
    """The counts that sequences of one kind share, greedy ones for example."""

    sources: Counts = field(default_factory=lambda: Counts(COMMON_MEMORY))
    bins: Counts = field(default_factory=lambda: Counts(COMMON_MEMORY))


class Acceptance:
    """The acceptance of one sequence, by source and confidence in the match."""

    def __init__(self, common: SharedCounts) -> None:
        self._common = common
        self._own = Counts(MEMORY)
        self._num_generated = 0

    def rate(self, source: str, match: float | None) -> float:
        """The acceptance probability of a draft token, given that those before are accepted."""
        usual = self._usual(source, match)
        return self._own.share((source, match), usual, COMMON_WEIGHT)

    def calibrated(self, confidence: float) -> float:
        """The same for a draft token with this probability by its draft model.

        Without counts, a bin takes the rate of all: for greedy drafts with a confidence of 0.25,
        nineteen of twenty draft tokens were accepted.
        """
        usual = self._usual(MODEL, None)
        return self._common.bins.share(_bin(confidence), usual, PRIOR_WEIGHT)

    def is_open(self, source: str) -> bool:
        """Whether a source has few counts, of other sequences too, and no bad ones."""
        verified = self._common.sources.verified((source, None))
        return verified < COMMON_WEIGHT and self._usual(source, None) > MODEL_PRIOR / 2

    def learn(self, stats: RoundStats) -> None:
        """Count a round's draft tokens up to the first rejected one."""
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
