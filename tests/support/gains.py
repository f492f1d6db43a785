"""Gains of drafters over plain decoding that are made up."""

from dataclasses import replace

from ov_specdec.measure.drafters import Candidate, Gain
from ov_specdec.measure.methods import Spread, SummaryRow

SUFFIX = Candidate("suffix")


def gain(*ratios, candidate=SUFFIX, plain=10.0):
    """A candidate with these ratios to plain decoding, one for each turn."""
    ratio, speed = Spread.of(ratios), Spread.of([plain])
    row = SummaryRow(1, "x", len(ratios), speed, ratio, speed, speed, 1.5, 0.5, 1.0)
    return Gain(candidate, row, replace(row, method=str(candidate)))


def always(ratio, candidate=SUFFIX, **plain):
    return gain(*4 * [ratio], candidate=candidate, **plain)
