"""Plans the draft lengths of a step for most tokens per second."""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from ov_specdec.planning.costs import Costs
from ov_specdec.planning.plan import HORIZON, MAX_PLANNED_LENGTH, Estimate, Plan
from ov_specdec.planning.ranking import Numbers, Ranking

DECAY = 1.0 - 1.0 / HORIZON

SPENT_ON_PROBES = 0.01
"""Fraction of the time for probes of drafts that did not pay: below noise. With all of the tokens
that the draft model reads for them it is twice as much at most."""


@dataclass(frozen=True)
class Load:
    """The main model's next pass without draft tokens; by default over a single sequence."""

    num_sequences: int = 1
    """In the pass."""
    num_answered: int = 1
    """Those that get a token from it."""
    num_tokens: int = 1
    """Tokens of the answered ones, without draft tokens that are to be planned."""
    num_read: int = 0
    """The sum over these tokens of the cached ones before them."""
    num_prefill: int = 0
    """Prefill tokens."""
    num_forced: int = 0
    """Of `num_tokens`, those that grammars force, which sequences get too."""


class StepPlan(NamedTuple):
    """The drafts of a step, and the size of the main model's pass, in tokens."""

    plans: list[Plan]
    """One for each estimate."""
    size: int = 0
    """To which to pad the pass; 0: not at all."""
    wanted: int = 0
    """The best size if all had static shapes; 0 for a pass with a prefill."""


class PassSize:
    """Chooses sizes of passes, as one of another size than the last takes longer.

    A size is kept while no other one gave recent steps more than a change costs, but for steps in
    which a static shape is as good.
    """

    def __init__(self) -> None:
        self._last = 0
        """The size of the last pass without a static shape."""
        self.forget()

    def forget(self) -> None:
        """Begin anew, under another load."""
        self._recent: Numbers = np.zeros(1)
        """What recent steps would have been worth by size, in tokens."""

    def choose(self, values: Numbers, change: float, static: Iterable[int], least: int) -> int:
        """The size of this step's pass, at least `least`.

        values: of the step, by size. change: what a change costs, in tokens; those to static shapes
        cost nothing, and leave the last other size prepared.
        """
        near = [size for size in static if least <= size < len(values)]
        free = max(near, key=values.__getitem__, default=0)
        # With any size prepared, a step can take a static shape instead.
        offered = np.maximum(values, values[free]) if free else values
        # No size is worth less than a change away from the best one: else a match after many steps
        # without any would be refused for what it would have lost in them.
        floor = self._recent.max() - change
        self._recent = DECAY * np.maximum(self._recent, floor) + offered
        spent = change * (np.arange(len(values)) != self._last)
        spent[near] = 0.0
        size = least + int((self._recent - spent)[least:].argmax())
        if free and values[size] <= values[free]:
            return free
        self._last = size
        return size


class Choice(NamedTuple):
    """The best draft length of each sequence of a step, and the seconds of the main model's pass.

    stays: whether it is the same in later steps while costs and what drafts are worth are. size,
    wanted: as in `StepPlan`.
    """

    lengths: list[int]
    seconds: float
    stays: bool
    size: int = 0
    wanted: int = 0


class Planner:
    """Plans the drafts of all sequences of a step together.

    Draft tokens of all sequences are ranked by the probability that they and those before them are
    accepted. For the first k of them, in drafts of at most n, tokens and seconds of the whole step
    are estimated, and the pair of k and n is chosen that has the best rate of tokens. For one
    sequence this is the optimal length of Leviathan et al., section 3.5 (arXiv 2211.17192), for
    many the goodput of Liu et al. (SmartSpec, arXiv 2406.14066), in which tokens of sequences that
    are ahead count less. Recent steps have no part in the rate: after matches a draft model that
    gains less than they do would stop, and a real pair with both had 0.82 of the speed.

    costs: the cost curves, looked up for each plan.
    """

    def __init__(self, costs: Costs) -> None:
        self.costs = costs
        self._alike: Hashable = None
        """The sizes of the load of recent steps."""
        self._pass_size = PassSize()
        self._credit = 0.0
        """Saved time for probes, in plain passes."""
        self._chosen = Choice([], 0.0, stays=False)
        self._basis: object = None
        """What the last choice came from, if it stays while that is the same."""

    def plan(self, estimates: Sequence[Estimate], load: Load) -> StepPlan:
        """The plans for sequences that draft; without estimates, of a step without drafts."""
        self._forget_others(load)
        # To choose takes 0.4 ms with four sequences, whose plain step takes a small model 6 ms.
        curve = self.costs.curve
        basis = curve, replace(load, num_read=0), [each.rate for each in estimates]
        if basis != self._basis:
            self._chosen = self._choose(estimates, load)
            self._basis = basis if self._chosen.stays else None
        lengths, seconds, _, size, wanted = self._chosen
        expected = seconds if self.costs.is_learned else 0.0
        plans = [
            Plan(n, "pays" if n else "loses", each.offer, each.rate, expected)
            for n, each in zip(lengths, estimates, strict=True)
        ]
        self._probe(plans, estimates, load)
        return StepPlan(plans, size, wanted)

    def _forget_others(self, load: Load) -> None:
        """Forget what was planned under another load."""
        # Forced tokens come and go: they fill a pass like draft tokens.
        num_tokens = load.num_tokens - load.num_forced
        alike = load.num_sequences, load.num_answered, num_tokens
        if not load.num_prefill and alike != self._alike:
            self._alike = alike
            self._pass_size.forget()

    def _choose(self, estimates: Sequence[Estimate], load: Load) -> Choice:
        """The best draft lengths, without probes, and the sizes.

        They have the greatest `tokens - rate * seconds`, where `rate` is the best ratio of the two
        (Dinkelbach, Management Science 13, 1967).
        """
        main, num = self.costs.curve.main, len(estimates)
        ranking = Ranking.of(estimates, self.costs.curve)
        num_drafting = num if load.num_prefill else load.num_answered
        largest = load.num_tokens - load.num_forced + MAX_PLANNED_LENGTH * num_drafting
        passes = main.by_size(largest + load.num_prefill, load.num_read)
        # Of each choice, [limits * (tokens + 1)] as in `Ranking`. With forced tokens, the longest
        # drafts count as the largest pass.
        fed = np.minimum(load.num_tokens + ranking.number.ravel(), largest)
        tokens = load.num_answered + load.num_forced + ranking.value.ravel()
        drafting = ranking.seconds.ravel()
        rate = float((tokens / (drafting + passes[fed])).max())
        gains = tokens - rate * drafting  # but for the pass, whose size is chosen next
        if load.num_prefill:  # its pass has a size of its own, and no part in the rate
            costs = passes[fed + load.num_prefill]
            best = int((gains - rate * costs).argmax())
            return Choice(ranking.lengths(best, num), float(costs[best]), stays=not best)
        # By size of the pass, [largest + 1]: the best choice that fits, or no draft tokens.
        most = np.full(len(passes), gains[0])
        np.maximum.at(most, fed, gains)
        values = np.maximum.accumulate(most) - rate * passes
        least = int(fed[0])
        values[:least] = values[least]
        size = self._pass_size.choose(values, rate * main.change, main.static, least)
        best = int(np.where(fed <= size, gains, -np.inf).argmax())
        # A size without a static shape is seldom chosen, so use does not show what one would save.
        wanted = int(fed[(tokens / (drafting + main.if_static(fed, load.num_read))).argmax()])
        # No other size gains what would make it pay in time.
        stays = not best and values[size] >= values.max()
        return Choice(ranking.lengths(best, num), float(passes[size]), stays, size, wanted)

    def _probe(self, plans: list[Plan], estimates: Sequence[Estimate], load: Load) -> None:
        """Change one of the plans to a probe of one draft token, if it is due.

        A successful probe is followed by another one.
        """
        idle = [i for i, plan in enumerate(plans) if plan.length == 0 and not plan.offer.is_match]
        self._credit += SPENT_ON_PROBES * len(idle) / load.num_sequences
        costs = {i: self._cost_of_probe(estimates[i], load) for i in idle}
        if due := [i for i in idle if costs[i] <= self._credit]:
            index = max(due, key=lambda i: (estimates[i].is_hopeful, estimates[i].rate))
            self._credit -= costs[index]
            plans[index] = replace(plans[index], length=1, reason="probe")

    def _cost_of_probe(self, estimate: Estimate, load: Load) -> float:
        """In plain passes; another one after a successful probe costs nothing."""
        if estimate.is_hopeful:
            return 0.0
        main, draft = self.costs.curve.main, self.costs.curve.draft
        size = load.num_tokens + load.num_prefill
        trying = main.at(size + 1, estimate.num_cached) - main.at(size)
        trying += 2 * main.change  # its pass has a rare size
        if draft is not None:
            # Unread tokens count half: drafts that go on need them too. Else a draft of a fifth of
            # the main model, once it has stopped, would not come back in a text.
            reading = draft.reading(estimate.offer.num_unread)
            trying += (draft.at(1, estimate.num_cached) + draft.resumed + reading) / 2
        return trying / main.at(1)
