"""How often candidates are accepted, counted over generations."""

from collections import defaultdict
from dataclasses import dataclass, field

from ov_specdec.stats import RoundStats

FORGETTING = 0.98
"""What is left of the weight of earlier candidates after a round."""

PRIOR = 0.7
"""The probability that a candidate is accepted, before anything is known."""

PRIOR_WEIGHT = 1.0
"""How many candidates it takes to outweigh what is expected of them."""

DISCOUNT = 0.3
"""What is left of the weight of earlier candidates when a source is tried again."""

FIRST_PATIENCE = 64
"""Plain rounds before a source that did not pay is tried again for the first time."""

NUM_BINS = 8


class AcceptanceStats:
    """How often candidates of one source are accepted: by place in the draft, and by confidence.

    Places differ: text that is easy to guess comes in runs, so a candidate after three accepted
    ones is likelier to be accepted than the first one.
    """

    def __init__(self) -> None:
        self._places = Counts()
        self._bins = Counts()

    def by_place(self, length: int) -> list[float]:
        """The probability that a candidate is accepted if those before it are, by place.

        What is known of one place is what is expected of the next.
        """
        expected, result = PRIOR, []
        for place in range(length):
            expected = self._places.share(place, expected)
            result.append(expected)
        return result

    def given(self, confidence: float) -> float:
        """The same for a candidate that its source gives this probability."""
        return self._bins.share(_bin(confidence), confidence)

    def learn(self, stats: RoundStats) -> None:
        """Count a round's candidates, up to the first rejected one; none after it was judged."""
        self._places.scale(FORGETTING)
        self._bins.scale(FORGETTING)
        for place in range(min(stats.num_accepted + 1, stats.num_drafted)):
            accepted = place < stats.num_accepted
            self._places.add(place, accepted)
            if stats.confidences:
                self._bins.add(_bin(stats.confidences[place]), accepted)

    def discount(self) -> None:
        """Give what was counted less weight, so that a new try can prove it wrong."""
        self._places.scale(DISCOUNT)
        self._bins.scale(DISCOUNT)


class Counts:
    """Candidates accepted and all that were judged, by some number; they may be fractions."""

    def __init__(self) -> None:
        self._accepted: dict[int, float] = {}
        self._judged: dict[int, float] = {}

    def share(self, key: int, expected: float) -> float:
        """The share that was accepted; `expected` where few were judged."""
        accepted, judged = self._accepted.get(key, 0.0), self._judged.get(key, 0.0)
        return (accepted + PRIOR_WEIGHT * expected) / (judged + PRIOR_WEIGHT)

    def add(self, key: int, accepted: bool) -> None:
        """Count one candidate."""
        self._accepted[key] = self._accepted.get(key, 0.0) + accepted
        self._judged[key] = self._judged.get(key, 0.0) + 1.0

    def scale(self, factor: float) -> None:
        """Multiply all counts."""
        for counts in (self._accepted, self._judged):
            for key in counts:
                counts[key] *= factor


def _bin(confidence: float) -> int:
    return min(int(confidence * NUM_BINS), NUM_BINS - 1)


@dataclass
class DraftHistory:
    """What drafting has brought in generations of one kind, greedy ones for example.

    idle: rounds without candidates since the last one with some. patience: how many of them to wait
    for before a new try, unless trying again is cheaper than that.
    """

    idle: int = 0
    patience: int = FIRST_PATIENCE
    _acceptance: dict[tuple[str, float | None], AcceptanceStats] = field(
        default_factory=lambda: defaultdict(AcceptanceStats)
    )

    def acceptance(self, source: str, match_confidence: float | None = None) -> AcceptanceStats:
        """That of a source; matches of each confidence have their own."""
        return self._acceptance[source, match_confidence]

    def learn(self, stats: RoundStats) -> None:
        """Take note of a round."""
        if stats.num_drafted:
            self.idle = 0
            self.acceptance(stats.source, stats.match_confidence).learn(stats)
        else:
            self.idle += 1
