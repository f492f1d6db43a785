"""Estimates a generation's speedup over plain decoding from its own passes."""

from itertools import pairwise
from statistics import median

from ov_specdec.planning.costs import CostCurve
from ov_specdec.results.stats import GenerationStats

MIN_PASSES = 8
"""Minimum number of passes for an estimate."""

UNSTEADY = 1.3
"""A tenth of the passes took more than so many times the median: the pace is not known."""


def estimate_speedup(stats: GenerationStats, curve: CostCurve) -> float | None:
    """The estimated speedup after the prefill; None if unknown.

    A plain token costs a pass over one token by the curve, at the speed of this generation: the
    median of its passes over as many tokens as the pass before, since plain decoding never changes
    the size. It is unknown with the nominal curve, with shared passes, without drafts, and if the
    speed varied.

    In 46 generations of the embedded pair and SmolLM2-135M, 40 estimates were 0.85 to 1.15 of the
    measured ratio, with a median of 0.97. With a varying speed, 22 of 32 were.
    """
    main, rounds = curve.main, stats.rounds[1:]
    paces = sorted(
        done.verify_seconds / main.at(done.pass_tokens)
        for before, done in pairwise(stats.rounds)
        if done.pass_tokens in (before.pass_tokens, *main.static)
    )
    is_alone = all(done.num_sequences == 1 for done in rounds)
    if not curve.sweeps or not stats.drafted or not is_alone or len(paces) < MIN_PASSES:
        return None
    pace = median(paces)
    if paces[int(0.9 * len(paces))] > UNSTEADY * pace:
        return None
    plain = sum(done.num_generated * main.at(1) for done in rounds)
    return pace * plain / sum(done.seconds for done in rounds)
