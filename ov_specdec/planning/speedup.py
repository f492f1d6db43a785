"""Estimates a generation's speedup over plain decoding from its own passes."""

from ov_specdec.planning.costs import CostCurve
from ov_specdec.stats import GenerationStats

ENOUGH = 8
"""Rounds whose passes tell the machine's pace."""


def estimate_speedup(stats: GenerationStats, curve: CostCurve) -> float | None:
    """The estimated speedup after the prefill; None if unknown.

    A plain token costs a pass over one token by the curve, at the speed of the fastest pass of this
    generation. It is unknown with the nominal curve, with shared passes, and without drafts.
    """
    rounds = stats.rounds[1:]
    is_alone = all(done.num_sequences == 1 for done in rounds)
    if not curve.sweeps or not stats.drafted or len(rounds) < ENOUGH or not is_alone:
        return None
    main = curve.main
    # Most others are longer by a change of size, which plain decoding has none of. In 16 texts of
    # the embedded pair it came to 0.6 to 1.4 of what was measured; with the median to 1.2 to 2.3.
    pace = min(
        done.verify_seconds / main.at(done.pass_tokens, done.cached_tokens) for done in rounds
    )
    plain = sum(done.num_generated * main.at(1, done.cached_tokens) for done in rounds)
    return pace * plain / sum(done.seconds for done in rounds)
