"""Plans the draft lengths of a step for most tokens per second."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ov_specdec.planning.costs import CostCurve, Costs, PassCurve
from ov_specdec.planning.draft_length import HORIZON, MAX_PLANNED_LENGTH, Estimate, Plan
from ov_specdec.planning.ranking import Numbers, Ranking

SAME_ACCEPTANCE, MOST_USES = 0.02, 4
"""A choice serves for so many steps while acceptances differ by less: making one takes 0.05 to 0.2
ms, a round of the embedded pair 3."""

SPENT_ON_PROBES = 0.01
"""Fraction of the time for probes of drafts that did not pay: below noise. With all of the tokens
that the draft model reads for them it is twice as much at most."""


@dataclass(frozen=True)
class Load:
    """The main model's next pass without draft tokens; by default over a single sequence.

    num_sequences: in the pass. num_answered: those that get a token from it. num_tokens: of these,
    without draft tokens that are to be planned. num_prefill: prefill tokens. num_forced: of
    `num_tokens`, those that grammars force, which sequences get too.
    """

    num_sequences: int = 1
    num_answered: int = 1
    num_tokens: int = 1
    num_prefill: int = 0
    num_forced: int = 0


@dataclass
class Choice:
    """What was chosen in a step, for the next ones in which estimates are about the same.

    follows: what else it depends on. wished: the size if changes of size were free. done: expected
    tokens and seconds. at_home: costs of the step by home size.
    """

    estimates: Sequence[Estimate]
    curve: CostCurve
    follows: Hashable
    lengths: list[int]
    size: int
    wished: int
    done: tuple[float, float]
    at_home: Numbers
    uses: int = 0

    def serves(self, estimates: Sequence[Estimate], curve: CostCurve, follows: Hashable) -> bool:
        """Whether it serves again; at most a few times, since the rate changes."""
        self.uses += 1
        return (
            self.uses <= MOST_USES
            and self.curve is curve
            and self.follows == follows
            and all(
                abs(one.acceptance[0] - other.acceptance[0]) <= SAME_ACCEPTANCE
                for one, other in zip(self.estimates, estimates, strict=True)
            )
        )


class Planner:
    """Plans the drafts of all sequences of a step together.

    Draft tokens of all sequences are ranked by the probability that they and those before them are
    accepted. For the first k of them, in drafts of at most n, tokens and seconds of the whole step
    are estimated, and the pair of k and n maximizes

        tokens - rate * seconds,

    where `rate` is the best rate of tokens over this and recent steps. For one sequence this is the
    optimal length of Leviathan et al., section 3.5 (arXiv 2211.17192), for many the goodput of Liu
    et al. (SmartSpec, arXiv 2406.14066), in which tokens of sequences that are ahead count less.

    A pass of another size than the last one takes longer, so most passes are padded to a home size.
    A step takes another size where that gains more than the change and the change back. The home
    size moves once another one would have saved more than a change in recent steps.

    While nothing is drafted, 1 to 2 % of the time goes to probes, rounds with one draft token.

    costs: the cost curves, looked up for each plan.
    """

    def __init__(self, costs: Costs) -> None:
        self.costs = costs
        self._load: Hashable = None
        self._past = (0.0, 0.0)
        """Tokens and seconds of recent steps under the same load."""
        self._choice: Choice | None = None
        """That of the last step."""
        self._home_costs: Numbers = np.zeros(1)
        """By home size, what recent steps would have cost, in tokens."""
        self._home = self._last_size = 0
        """The home size without the tokens of `Load`, and the size of the last pass."""
        self.size = 0
        """The size to which to pad this step's pass."""
        self.wished = 0
        """The size of the last planned pass if changes of size were free."""
        self._credit = 0.0
        """Saved time for probes, in plain passes."""

    def plan(self, estimates: Sequence[Estimate], load: Load) -> list[Plan]:
        """The plans for sequences that draft; without estimates, of a step without drafts."""
        curve = self.costs.curve
        self._forget_others(load, curve.sweeps)
        offers = tuple([(each.offer.source, each.offer.confidence) for each in estimates])
        choice, follows = self._choice, (offers, load, self._home, self._last_size)
        if choice is None or not choice.serves(estimates, curve, follows):
            choice = self._choice = self._choose(estimates, load, follows)
        self.size = 0
        if not load.num_prefill:
            self.size, self.wished = choice.size, choice.wished
            if self.size not in curve.main.static:
                self._last_size = self.size
            decay, (tokens, seconds) = 1.0 - 1.0 / HORIZON, self._past
            self._past = decay * (tokens + choice.done[0]), decay * (seconds + choice.done[1])
            self._home_costs = decay * self._home_costs + choice.at_home
        plans = [
            Plan(n, "pays" if n else "loses", each.offer, each.acceptance)
            for each, n in zip(estimates, choice.lengths, strict=True)
        ]
        return self._probe(plans, estimates, load)

    def _forget_others(self, load: Load, sweeps: int) -> None:
        """Forget what was planned under another load, or with a nominal curve."""
        # Forced tokens come and go: they fill a pass like draft tokens.
        num_tokens = load.num_tokens - load.num_forced
        alike = sweeps, load.num_sequences, load.num_answered, num_tokens
        if not load.num_prefill and alike != self._load:
            self._load, self._past, self._home = alike, (0.0, 0.0), -1
            self._home_costs = np.zeros(MAX_PLANNED_LENGTH * load.num_answered + 1)

    def _choose(self, estimates: Sequence[Estimate], load: Load, follows: Hashable) -> Choice:
        curve, forced = self.costs.curve, load.num_forced
        first = load.num_tokens - forced
        most = MAX_PLANNED_LENGTH * (len(estimates) if load.num_prefill else load.num_answered)
        passes = curve.main.by_size(first, first + most, load.num_sequences)
        ranking = Ranking.of(estimates, curve)
        number, seconds = ranking.number.ravel() + forced, ranking.seconds.ravel()
        number = number.clip(max=most)  # a pass may be larger by as many as are forced
        tokens = load.num_answered + forced + ranking.expected_accepted.ravel()
        all_tokens, all_seconds = self._past
        rate = float(((all_tokens + tokens) / (all_seconds + seconds + passes[number])).max())
        gains, size, wished, at_home = tokens - rate * seconds, 0, 0, self._home_costs
        if load.num_prefill:  # its pass has a size of its own, and no part in the rate
            first += load.num_prefill
            passes = curve.main.by_size(first, first + most, load.num_sequences)
            best = int((gains - rate * passes[number]).argmax())
        else:
            size, wished, at_home = self._choose_size(
                gains, number, passes, rate, curve.main, first
            )
            best = int(np.where(number <= size - first, gains, -np.inf).argmax())
        spent = float(seconds[best] + passes[size - first if size else 0])
        lengths = ranking.lengths(best, len(estimates))
        done = float(tokens[best]), spent
        return Choice(estimates, curve, follows, lengths, size, wished, done, at_home)

    def _choose_size(
        self,
        gains: Numbers,
        number: NDArray[np.integer],
        passes: Numbers,
        rate: float,
        main: PassCurve,
        first: int,
    ) -> tuple[int, int, Numbers]:
        """The size of this step's pass, the one if changes were free, and costs by home size.

        passes: seconds by size, from `first` tokens.
        """
        best = np.full(len(passes), -np.inf)
        np.maximum.at(best, number, gains)
        costs = rate * passes - np.maximum.accumulate(best)
        wished = first + int(costs.argmin())
        change = np.full(len(costs), rate * main.change)
        if main.static:
            change[[n - first for n in main.static if 0 <= n - first < len(costs)]] = 0.0
        # At another size and back, if that costs less.
        at_home = np.minimum(costs, float((costs + 2.0 * change).min()))
        recent = (1.0 - 1.0 / HORIZON) * self._home_costs + at_home
        if self._home < 0:
            self._home = int(costs.argmin())
        if recent[self._home] > recent.min() + change[self._home]:
            self._home = int(recent.argmin())
        sizes = np.arange(len(costs))
        costs += change * (sizes != self._last_size - first)
        costs += change[self._home] * (sizes != self._home)
        return first + int(costs.argmin()), wished, at_home

    def _probe(self, plans: list[Plan], estimates: Sequence[Estimate], load: Load) -> list[Plan]:
        """The plans, with a probe of one draft token if it is due.

        A successful probe is followed by another one.
        """
        num_idle = sum(plan.length == 0 for plan in plans)
        self._credit += SPENT_ON_PROBES * num_idle / load.num_sequences
        idle = [i for i, plan in enumerate(plans) if plan.length == 0 and plan.offer.needs_probe]
        if not idle:
            return plans
        index = max(idle, key=lambda i: (estimates[i].is_hopeful, estimates[i].acceptance[0]))
        probed = estimates[index]
        if not probed.is_hopeful:
            main, draft = self.costs.curve.main, self.costs.curve.draft
            size, others = load.num_tokens + load.num_prefill, load.num_sequences
            trying = main.at(size + 1, others) - main.at(size, others)
            trying += 2 * main.change  # its pass has a rare size
            if draft is not None and not probed.offer.is_match:
                # Skipped tokens count half: drafts that go on need them too. Else a draft of a
                # fifth of the main model, once it has stopped, would not come back in a text.
                trying += (draft.at(1) + draft.at(probed.num_unread)) / 2
            cost = trying / main.at(1)
            if self._credit < cost:
                return plans
            self._credit -= cost
        plans[index] = replace(plans[index], length=1, reason="probe")
        return plans
