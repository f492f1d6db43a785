"""What rounds have taught about a machine and its models; it outlives a generation."""

from collections import defaultdict, deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from statistics import median

from ov_specdec.cost import CostCurve
from ov_specdec.policy import Source
from ov_specdec.stats import RoundStats

RECENT = 5
"""Plain rounds that a median goes back."""

PACES = 8
"""Rounds that say what a plain round would take at the time."""

OLD = 256
"""Rounds after which plain decoding is timed again."""

FORGETTING = 0.98
"""What is left of the weight of earlier candidates after a round."""

PRIOR = 0.7
"""The probability that a candidate stands, before anything is known."""

PRIOR_CHANGE = 1.0
"""What a change of size seems to cost before it was measured, in plain rounds."""

PRIOR_WEIGHT = 1.0
"""How many candidates it takes to outweigh what is expected of them."""

DOUBT = 0.3
"""What is left of the weight of earlier candidates when a source is tried again."""

FIRST_PATIENCE = 64
"""Plain rounds before a source that did not pay is tried again for the first time."""

NUM_BINS = 8


class Acceptance:
    """How often candidates of one source stand: by their place in the draft, and by confidence.

    Places differ: text that is easy to guess comes in runs, so a candidate after three that stood
    is likelier to stand than the first one.
    """

    def __init__(self) -> None:
        self._places = Counts()
        self._bins = Counts()

    def by_place(self, length: int) -> list[float]:
        """The probability that a candidate stands if those before it do, for the first places.

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
        """Count a round's candidates, up to the first that fell; those after it were not tried."""
        self._places.scale(FORGETTING)
        self._bins.scale(FORGETTING)
        for place in range(min(stats.num_accepted + 1, stats.num_drafted)):
            stood = place < stats.num_accepted
            self._places.add(place, stood)
            if stats.confidences:
                self._bins.add(_bin(stats.confidences[place]), stood)

    def doubt(self) -> None:
        """Give what was counted less weight, so that a new try can prove it wrong."""
        self._places.scale(DOUBT)
        self._bins.scale(DOUBT)


class Counts:
    """Candidates that stood and all that were tried, by some number; they may be fractions."""

    def __init__(self) -> None:
        self._stood: dict[int, float] = {}
        self._tried: dict[int, float] = {}

    def share(self, key: int, expected: float) -> float:
        """The share that stood; `expected` where few were tried."""
        stood, tried = self._stood.get(key, 0.0), self._tried.get(key, 0.0)
        return (stood + PRIOR_WEIGHT * expected) / (tried + PRIOR_WEIGHT)

    def add(self, key: int, stood: bool) -> None:
        """Count one candidate."""
        self._stood[key] = self._stood.get(key, 0.0) + stood
        self._tried[key] = self._tried.get(key, 0.0) + 1.0

    def scale(self, factor: float) -> None:
        """Multiply all counts."""
        for counts in (self._stood, self._tried):
            for key in counts:
                counts[key] *= factor


def _bin(confidence: float) -> int:
    return min(int(confidence * NUM_BINS), NUM_BINS - 1)


@dataclass
class Habits:
    """What is known of generations of one kind, greedy ones for example.

    acceptance: by source, and by the confidence of a match of prompt lookup. idle: rounds without
    candidates since the last one with some. patience: how many of them to wait for, unless trying
    again is cheaper than that.
    """

    acceptance: dict[tuple[str, float | None], Acceptance] = field(
        default_factory=lambda: defaultdict(Acceptance)
    )
    idle: int = 0
    patience: int = FIRST_PATIENCE


class Experience:
    """What rounds cost, and for each kind of generation the acceptance of each source.

    Costs are in plain rounds, that is relative to a round of plain decoding of about the same time:
    machines slow down and recover while they work, and the ratios stay. What such a round would
    take follows from recent passes of other sizes, whose costs are known. A pass over another
    number of tokens than the last one takes longer, because OpenVINO prepares for the new size:
    that is learnt as a cost of its own.
    """

    def __init__(self) -> None:
        self._habits: dict[Hashable, Habits] = defaultdict(Habits)
        self.habits = self._habits[None]
        self._plain: deque[float] = deque(maxlen=RECENT)
        # Tokens in a recent pass, and what a plain round took at the time, as far as it tells.
        self._paces: deque[tuple[int, float]] = deque(maxlen=PACES)
        self._since_plain = 0
        # Seconds of the last round if its pass had another size than the one before.
        self._changed: float | None = None
        self._changes: deque[float] = deque(maxlen=RECENT)
        self._sizes: set[int] = set()
        self.further_tokens = CostCurve()
        """What further tokens add to a pass of the main model."""
        self._drafting: dict[str, CostCurve] = defaultdict(CostCurve)

    def turn_to(self, kind: Hashable) -> None:
        """Begin a generation of some kind: the more tokens are left to chance, the fewer stand."""
        self.habits = self._habits[kind]

    @property
    def is_timed(self) -> bool:
        """Whether both plain rounds and rounds with candidates have been timed."""
        return bool(self._plain and self.further_tokens)

    @property
    def is_old(self) -> bool:
        """Whether plain rounds had better be timed again."""
        return self._since_plain >= OLD

    @property
    def plain_seconds(self) -> float:
        """Seconds of a plain round."""
        return median(self._plain)

    @property
    def change(self) -> float:
        """What a change of size adds to a pass, in plain rounds."""
        return median(self._changes) if self._changes else PRIOR_CHANGE

    def drafting(self, source: Source) -> CostCurve:
        """What it takes to draft some candidates."""
        return self._drafting[source]

    def acceptance(self, source: str, confidence: float | None = None) -> Acceptance:
        """That of a source; each kind of match of prompt lookup, by its confidence, has its own."""
        return self.habits.acceptance[source, confidence]

    def learn(self, stats: RoundStats, last_size: int) -> None:
        """Take note of a round; last_size: tokens in the pass of the round before."""
        self.habits.idle = 0 if stats.num_drafted else self.habits.idle + 1
        self.further_tokens.end_round()
        if stats.num_drafted:
            kind = stats.confidences[0] if stats.source == "prompt-lookup" else None
            self.acceptance(stats.source, kind).learn(stats)
        seconds = stats.seconds - stats.draft_seconds
        is_steady = stats.pass_tokens == last_size
        is_new = stats.pass_tokens not in self._sizes
        self._sizes.add(stats.pass_tokens)
        self._since_plain += 1
        if is_steady:
            self._learn_change(stats.pass_tokens, seconds)
            self._learn_costs(stats, seconds)
        elif is_new:
            return  # the first pass of its size takes longer than any other
        else:
            self._changed = seconds
            if stats.pass_tokens > 1 and self._plain:
                self._learn_costs(stats, seconds - self.change * self.plain_seconds)

    def _learn_change(self, size: int, seconds: float) -> None:
        """Compare a round with the one before it, whose pass had to change to the same size."""
        if self._changed is not None and (size == 1 or self.further_tokens):
            cost = 1.0 + self.further_tokens.at(size - 1)
            self._changes.append(max(self._changed / seconds - 1.0, 0.0) * cost)
        self._changed = None

    def _learn_costs(self, stats: RoundStats, seconds: float) -> None:
        """seconds: of a round that has not paid for a change, drafting left out."""
        if stats.pass_tokens == 1:
            self._plain.append(seconds)
            self._since_plain = 0
        # A size can only be compared with others: against itself it would always cost the same.
        paces = [pace for size, pace in self._paces if size != stats.pass_tokens]
        if paces and stats.pass_tokens > 1:
            pace = median(paces)
            self.further_tokens.add(stats.pass_tokens - 1, max(seconds / pace - 1.0, 0.0))
            if stats.num_drafted:
                self._drafting[stats.source].add(stats.num_drafted, stats.draft_seconds / pace)
        cost = 1.0 + self.further_tokens.at(stats.pass_tokens - 1)
        self._paces.append((stats.pass_tokens, seconds / cost))
