"""The draft length with the best expected tokens per second, learnt while decoding."""

import itertools
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from operator import mul

from ov_specdec.speculation.acceptance import FIRST_PATIENCE, DraftHistory
from ov_specdec.speculation.cost_model import CostModel
from ov_specdec.speculation.draft_length import Plan
from ov_specdec.stats import RoundStats

MAX_LENGTH = 16
LENGTHS = (0, *range(2, MAX_LENGTH + 1))
"""Lengths to choose from; a pass over just 2 tokens tells too little of what further ones cost."""

FIRST_LENGTH, TRIED_LENGTH = 4, 2
"""Length of the first drafts, and of those that are tried after a time without."""

TIMING, FIRST_TRY, TRYING = "times plain decoding", "first try", "tries again"
DWELL = 4
ROUNDS = {TIMING: 3, TRYING: 3}
"""Rounds after which a length is looked at again: `DWELL`, but for these reasons of it."""

GAIN = 1.05
"""How much faster another length must promise to be, as long as nothing else speaks for it."""

SPENT_ON_TRIES = 0.01
"""Part of the time that goes into tries in the long run while speculation is switched off."""

PATIENCE_GROWTH = 3
"""How much longer to wait for the next try after one that failed."""

RECENT = 4
"""Rounds after which a pass is no longer padded to the size that it had."""


class AdaptiveLength:
    """Drafts as much as yields most tokens per second. Implements `Policy`.

    If the first i candidates are accepted with probability s(i), a round with n of them adds
    1 + s(1) + ... + s(n) tokens (Leviathan et al., arXiv 2211.17192, section 3.1, where s(i) is a
    power of one acceptance rate). What it takes to draft and to verify n of them is learnt from the
    rounds (see `CostModel`), and so is s (see `DraftHistory`). n may be 0: where speculation does
    not pay it is switched off, and tried again from time to time at small cost. Within a round
    drafting ends where the next candidate is not worth its time, because the source is not sure
    enough of those so far.

    sources: where the drafter may take candidates from. What the length is kept for is the last of
    them; a match of one before it has the length that it deserves, and is taken unless the last
    promises to be faster than that match. costs, history: what was learnt before, and where this
    generation adds to it.
    """

    def __init__(
        self,
        sources: Sequence[str],
        costs: CostModel,
        history: DraftHistory,
        min_confidence: float = 0.0,
    ) -> None:
        self._costs = costs
        self._history = history
        self._min_confidence = min_confidence
        self._source = sources[-1]
        self._plan = Plan(0, TIMING, min_confidence)
        self._age = 0
        self._last_size: int | None = None
        self._sizes: deque[int] = deque(maxlen=RECENT)
        if costs.is_timed and not costs.is_old:
            self._reconsider()

    def plan(self, source: str, confidence: float | None = None) -> Plan:
        """The plan for the next round."""
        if confidence is None or not self._costs.is_timed or self._plan.reason == TRYING:
            return self._plan
        return self._plan_match(source, confidence)

    def _plan_match(self, source: str, confidence: float) -> Plan:
        """The plan for a match, whose candidates all have one confidence."""
        speeds = self.expected_speeds(source, confidence)
        best = max(LENGTHS, key=speeds.__getitem__)
        if source != self._source:
            others = self.expected_speeds(self._source)
            if speeds[best] < others[self._plan.length]:
                return Plan(0, f"the {self._source} drafter promises more than the match")
        return Plan(best, "pays, by the length of the match" if best else "does not pay")

    def expected_speeds(self, source: str, confidence: float | None = None) -> list[float]:
        """Tokens per second to expect of lengths 0 to MAX_LENGTH, once rounds were timed."""
        costs = self._costs
        drafting, verifying = costs.drafting(source), costs.further_tokens
        survival = itertools.accumulate(
            self._history.acceptance(source, confidence).by_place(MAX_LENGTH), mul, initial=1.0
        )
        return [
            tokens / (1.0 + drafting.at(n) + verifying.at(n)) / costs.plain_seconds
            for n, tokens in enumerate(itertools.accumulate(survival))
        ]

    def pass_size(self, num_tokens: int) -> int:
        """The largest recent size, where padding to it costs less than changing the size."""
        largest = max(self._sizes, default=0)
        if num_tokens < largest and self._costs.is_timed and self._plan.reason != TIMING:
            if (largest - num_tokens) * self._costs.further_tokens.slope < self._costs.change:
                return largest
        return num_tokens

    def update(self, stats: RoundStats) -> None:
        """Learn costs and acceptance from a round, and settle on the next length."""
        if self._last_size is not None:  # the prefill is like no other round
            self._costs.learn(stats, self._last_size)
            self._history.learn(stats)
            self._sizes.append(stats.num_drafted + 1)
            self._age += 1
            if self._age % ROUNDS.get(self._plan.reason, DWELL) == 0:
                self._look()
        self._last_size = stats.pass_tokens

    def _look(self) -> None:
        """Go on with what there is to find out, or settle."""
        if self._costs.is_timed:
            if self._plan.length and self._costs.is_old:
                self._change(Plan(0, TIMING))
            else:
                self._reconsider()
        elif self._plan.reason == TIMING:
            self._change(Plan(FIRST_LENGTH, FIRST_TRY))

    def _reconsider(self) -> None:
        """Change to a length that is clearly better; try a draft after a long time without."""
        speeds = self.expected_speeds(self._source)
        best = max(LENGTHS, key=speeds.__getitem__)
        now, settled = self._plan.length, self._plan.reason not in ROUNDS
        if best and speeds[best] > GAIN * speeds[now if settled else 0]:
            expected = f"{speeds[best]:.0f} tokens/s expected, {speeds[0]:.0f} without"
            self._history.patience = FIRST_PATIENCE
            self._change(self._ending_early(best, f"pays: {expected}", speeds[best]))
        elif not settled or (now and best == 0):
            if self._plan.reason == TRYING:
                self._history.patience *= PATIENCE_GROWTH
            self._change(Plan(0, "does not pay"))
        elif now == 0 and self._history.idle >= self._patience(speeds):
            self._history.acceptance(self._source).discount()
            self._change(Plan(TRIED_LENGTH, TRYING))
        else:
            self._change(self._ending_early(now, self._plan.reason, speeds[now]))

    def _ending_early(self, length: int, reason: str, speed: float) -> Plan:
        """A plan for `length` candidates at most; speed: tokens per second to expect of it."""
        costs = self._costs
        verifying, drafting = costs.further_tokens, costs.drafting(self._source)
        # A shorter pass has another size, and so has the next one of full length.
        spared = verifying.at(length) - verifying.at(1) - 2 * costs.change
        if length < 2 or spared <= 0:
            return Plan(
                length, reason
            )  # then the pass keeps its size, and to end early spares little
        acceptance = self._history.acceptance(self._source)
        cost = (spared / (length - 1) + drafting.slope) * costs.plain_seconds
        # The next candidate yields a token if it and all before it are accepted.
        survival = cost * speed / acceptance.by_place(length)[-1]
        return Plan(length, reason, min_survival=survival, acceptance=acceptance.given)

    def _patience(self, speeds: Sequence[float]) -> float:
        """Plain rounds before the next try: more after each that failed, up to a bound."""
        slower = speeds[0] / speeds[TRIED_LENGTH] - 1.0
        # What a try loses if nothing has changed, in rounds of plain decoding.
        cost = ROUNDS[TRYING] * slower + 2 * self._costs.change
        return min(self._history.patience, cost / SPENT_ON_TRIES)

    def _change(self, plan: Plan) -> None:
        if plan.length != self._plan.length:
            self._age = 0
        self._plan = replace(plan, min_confidence=self._min_confidence)
