"""The draft length with the best expected tokens per second, learnt while decoding."""

import itertools
from collections import deque
from statistics import median

from ov_specdec.stats import RoundStats

MAX_LENGTH = 16
FIRST_LENGTH = 3
OPENING = (0, 0, 0, FIRST_LENGTH)
"""Lengths of the first rounds: the prefill, plain decoding to time it, and then a draft."""

DWELL = 3
"""Rounds that a length is kept at least."""

GAIN = 1.03
"""How much faster another length must promise to be. A pass of another size than the last one
takes up to twice as long, because OpenVINO prepares for it, so changes must be few."""

MEMORY = 15
"""Rounds that a median of times goes back: not more, because passes slow down with the context."""

FORGETTING = 0.98
"""What is left of the weight of earlier candidates after a round."""

PRIOR_STOOD, PRIOR_FELL = 0.7, 0.3
"""Candidates that seem to have stood and fallen before the first."""

FIRST_WAIT, LONGEST_WAIT = 50, 400
"""Rounds without a draft before the next try; doubled after each try."""


class AdaptiveLength:
    """Keeps to the length whose rounds yield most tokens per second. Implements `Policy`.

    If each candidate stands with probability a, a round with n of them adds
    1 + a + ... + a^n tokens (Leviathan et al., arXiv 2211.17192, equation 1). It takes as long as a
    round of plain decoding, and n times what a candidate adds to draft and verify. Both times are
    medians of recent rounds, so nothing has to be configured. n may be 0: where speculation does
    not pay it is switched off, and tried again from time to time at small cost.
    """

    def __init__(self) -> None:
        self._length = OPENING[0]
        self._age = 0
        self._rounds = 0
        self._last_drafted = 0
        self._plain_seconds: deque[float] = deque(maxlen=MEMORY)
        self._extra_seconds: deque[float] = deque(maxlen=MEMORY)
        self._stood, self._fell = PRIOR_STOOD, PRIOR_FELL
        self._wait = FIRST_WAIT

    @property
    def num_draft_tokens(self) -> int:
        """The length for the next round."""
        return self._length

    @property
    def acceptance(self) -> float:
        """The probability that a candidate stands; recent ones weigh more."""
        return self._stood / (self._stood + self._fell)

    def expected_speeds(self) -> list[float]:
        """Tokens per second to expect of lengths 0 to MAX_LENGTH, once both kinds were timed."""
        plain, extra = median(self._plain_seconds), median(self._extra_seconds)
        tokens = itertools.accumulate(self.acceptance**i for i in range(MAX_LENGTH + 1))
        return [expected / (plain + n * extra) for n, expected in enumerate(tokens)]

    def update(self, stats: RoundStats) -> None:
        """Learn times and acceptance from a round, and settle on the next length."""
        self._rounds += 1
        self._age += 1
        if self._rounds > 1:  # the prefill is like no other round
            self._learn_times(stats)
            self._learn_acceptance(stats)
        if self._rounds < len(OPENING):
            self._change(OPENING[self._rounds])
        elif self._age >= DWELL and self._plain_seconds and self._extra_seconds:
            self._reconsider()

    def _learn_times(self, stats: RoundStats) -> None:
        """Note the time of a round, unless it has paid for a change of size."""
        is_steady = stats.num_drafted == self._last_drafted
        self._last_drafted = stats.num_drafted
        if stats.num_drafted == 0 and (is_steady or not self._plain_seconds):
            self._plain_seconds.append(stats.seconds)
        elif is_steady and self._plain_seconds:
            extra = stats.seconds - median(self._plain_seconds)
            # Drafting is not free, whatever the difference of two noisy times may say.
            self._extra_seconds.append(max(extra, stats.draft_seconds) / stats.num_drafted)

    def _learn_acceptance(self, stats: RoundStats) -> None:
        if stats.num_drafted > 0:
            self._stood = FORGETTING * self._stood + stats.num_accepted
            self._fell = FORGETTING * self._fell + (stats.num_accepted < stats.num_drafted)

    def _reconsider(self) -> None:
        """Change to a length that is clearly better; try a draft after a long time without."""
        speeds = self.expected_speeds()
        best = max(range(MAX_LENGTH + 1), key=speeds.__getitem__)
        if speeds[best] > GAIN * speeds[self._length]:
            self._change(best)
        elif self._length == 0 and self._age >= self._wait:
            self._wait = min(2 * self._wait, LONGEST_WAIT)
            self._change(max(range(1, MAX_LENGTH + 1), key=speeds.__getitem__))

    def _change(self, length: int) -> None:
        if length != self._length:
            self._length = length
            self._age = 0
