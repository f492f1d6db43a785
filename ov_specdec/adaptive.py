"""The draft length with the best expected tokens per second, learnt while decoding."""

import itertools
from collections import deque
from statistics import median

from ov_specdec.stats import RoundStats

MAX_LENGTH = 16
FIRST_LENGTH = 3
OPENING = (0, FIRST_LENGTH, 0, FIRST_LENGTH)
"""Lengths of the first rounds: the prefill, then drafts and plain decoding, to know both."""

MEMORY = 15
"""Rounds that a median of times goes back: few, because passes slow down as the context grows."""

FORGETTING = 0.98
"""What is left of the weight of earlier candidates after a round."""

PRIOR_STOOD, PRIOR_FELL = 1.4, 0.6
"""Candidates that seem to have stood and fallen before the first."""

FIRST_WAIT, LONGEST_WAIT = 8, 128
"""Rounds without a draft before the next try; doubled after a try that does not pay."""


class AdaptiveLength:
    """Chooses the length whose rounds yield most tokens per second. Implements `Policy`.

    If each candidate stands with probability a, a round with n of them adds
    1 + a + ... + a^n tokens (Leviathan et al., arXiv 2211.17192, equation 1). It takes as long as a
    round of plain decoding, and n times what a candidate adds to draft and verify. Both times are
    medians of recent rounds, so nothing has to be configured. n may be 0: where speculation does
    not pay it is switched off, and tried again from time to time at small cost.
    """

    def __init__(self) -> None:
        self._rounds = 0
        self._plain_seconds: deque[float] = deque(maxlen=MEMORY)
        self._extra_seconds: deque[float] = deque(maxlen=MEMORY)
        self._stood, self._fell = PRIOR_STOOD, PRIOR_FELL
        self._has_drafted = False
        self._rounds_off = 0
        self._wait = FIRST_WAIT

    @property
    def num_draft_tokens(self) -> int:
        """The length for the next round."""
        if self._rounds < len(OPENING):
            return OPENING[self._rounds]
        if not self._extra_seconds:
            return FIRST_LENGTH  # prompt lookup may have had no match so far
        best = self._best(shortest=0)
        return self._best(shortest=1) if best == 0 and self._rounds_off >= self._wait else best

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
        """Learn times and acceptance from a round."""
        self._rounds += 1
        if self._rounds == 1:
            return  # the prefill is like no other round
        if stats.num_drafted == 0:
            self._plain_seconds.append(stats.seconds)
            self._rounds_off += 1
            return
        self._learn_wait()
        if self._has_drafted and self._plain_seconds:
            extra = (stats.seconds - median(self._plain_seconds)) / stats.num_drafted
            self._extra_seconds.append(max(extra, 0.0))
        self._has_drafted = True  # in its first round the draft model has read the prompt, too
        self._stood = FORGETTING * self._stood + stats.num_accepted
        self._fell = FORGETTING * self._fell + (stats.num_accepted < stats.num_drafted)

    def _learn_wait(self) -> None:
        """Wait longer after a try in vain: after a round that was drafted though 0 seemed best."""
        self._rounds_off = 0
        if self._extra_seconds and self._best(shortest=0) == 0:
            self._wait = min(2 * self._wait, LONGEST_WAIT)
        else:
            self._wait = FIRST_WAIT

    def _best(self, *, shortest: int) -> int:
        speeds = self.expected_speeds()
        return max(range(shortest, MAX_LENGTH + 1), key=speeds.__getitem__)
