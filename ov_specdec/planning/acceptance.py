"""Estimates acceptance of draft tokens, from a sequence and from earlier ones."""

from collections.abc import Hashable

from ov_specdec.results.stats import RoundStats

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
They weigh 50 at most, against `COMMON_WEIGHT`.

On recorded drafts 0.96 to 0.995 are equally good.
"""

COMMON_MEMORY = 0.998
"""The same for the counts of all sequences: the last 500."""


class Counts:
    """Decaying counts of verified and accepted draft tokens, by key.

    Those of earlier sequences are shared by all of one kind, greedy ones for example.
    """

    def __init__(self, memory: float = COMMON_MEMORY) -> None:
        self._memory = memory
        self._counts: dict[Hashable, tuple[float, float]] = {}

    def share(self, key: Hashable, expected: float, weight: float) -> float:
        """The accepted fraction, shrunk towards `expected` with this weight."""
        verified, accepted = self._counts.get(key, (0.0, 0.0))
        return (accepted + weight * expected) / (verified + weight)

    def add(self, key: Hashable, accepted: bool) -> None:
        """Count one draft token."""
        before, memory = self._counts.get(key, (0.0, 0.0)), self._memory
        self._counts[key] = memory * before[0] + 1.0, memory * before[1] + accepted


class Acceptance:
    """The acceptance of one sequence, by source and confidence in the match.

    A text starts from the rate of earlier ones, and moves with what it accepts.
    """

    def __init__(self, common: Counts) -> None:
        self._common = common
        self._own = Counts(MEMORY)

    def rate(self, source: str, confidence: float | None) -> float:
        """The acceptance probability of a draft token, given that those before are accepted.

        confidence: in a match; None for a draft model's token.
        """
        key = source, confidence
        prior = MODEL_PRIOR if confidence is None else confidence
        return self._own.share(key, self._common.share(key, prior, PRIOR_WEIGHT), COMMON_WEIGHT)

    def learn(self, stats: RoundStats) -> None:
        """Count a round's draft tokens up to the first rejected one, and a declined match."""
        drafted = (stats.source, stats.match_confidence)
        counted = min(stats.num_accepted + 1, stats.num_drafted)
        outcomes = [(drafted, index < stats.num_accepted) for index in range(counted)]
        if stats.declined is not None:
            source, confidence, accepted = stats.declined
            outcomes.append(((source, confidence), accepted))
        for key, accepted in outcomes:
            self._own.add(key, accepted)
            self._common.add(key, accepted)
