"""What rounds cost on this machine, measured while they run; it outlives a generation."""

from collections import defaultdict, deque
from statistics import median

from ov_specdec.speculation.cost_curve import CostCurve
from ov_specdec.stats import RoundStats

RECENT = 5
"""Plain rounds that a median goes back."""

PACES = 8
"""Rounds that say what a plain round would take at the time."""

OLD = 256
"""Rounds after which plain decoding is timed again."""

PRIOR_CHANGE = 1.0
"""What a change of size seems to cost before it was measured, in plain rounds."""


class CostModel:
    """What rounds cost, in plain rounds: relative to a round of plain decoding at the time.

    Machines slow down and recover while they work, and the ratios stay. What a plain round would
    take follows from recent passes of other sizes, whose costs are known. A pass over another
    number of tokens than the last one takes longer, because OpenVINO prepares for the new size:
    that is learnt as a cost of its own.
    """

    def __init__(self) -> None:
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

    def drafting(self, source: str) -> CostCurve:
        """What it takes to draft some candidates."""
        return self._drafting[source]

    def learn(self, stats: RoundStats, last_size: int) -> None:
        """Take note of a round; last_size: tokens in the pass of the round before."""
        self.further_tokens.end_round()
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
