"""How many times as fast as plain decoding a generation was, as its own passes tell."""

from itertools import pairwise
from statistics import median

from ov_specdec.planning.costs import CostCurve
from ov_specdec.stats import GenerationStats

ENOUGH = 8
"""Passes that tell the machine's pace."""

UNSTEADY = 1.3
"""A tenth of the passes took more than so many times the median: the pace is not known."""


def estimate_speedup(stats: GenerationStats, curve: CostCurve) -> float | None:
    """About how many times plain decoding's speed it had after the prefill; None where unknown.

    A plain token is taken to cost what the curve says of a pass over one token, at the pace of this
    generation: the median of its passes over as many tokens as the pass before, since plain
    decoding changes no size. That is unknown where the curve is imagined, where others shared the
    passes, where nothing was drafted, and where the pace varied.

    In 46 generations of the embedded pair and SmolLM2-135M it was 0.85 to 1.15 of the measured
    ratio in 40, in the median 0.97 of it. Where the pace varied it was so in 22 of 32.
    """
    main, rounds = curve.main, stats.rounds[1:]
    paces = sorted(
        done.verify_seconds / main.at(done.pass_tokens, done.cached_tokens)
        for before, done in pairwise(stats.rounds)
        if done.pass_tokens in (before.pass_tokens, *main.static)
    )
    is_alone = all(done.num_sequences == 1 for done in rounds)
    if not curve.sweeps or not stats.drafted or not is_alone or len(paces) < ENOUGH:
        return None
    pace = median(paces)
    if paces[int(0.9 * len(paces))] > UNSTEADY * pace:
        return None
    plain = sum(done.num_generated * main.at(1, done.cached_tokens) for done in rounds)
    return pace * plain / sum(done.seconds for done in rounds)
