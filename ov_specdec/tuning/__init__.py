"""Measures which execution properties and drafter are fastest for a pair on this machine."""

from ov_specdec.tuning.budget import Budget
from ov_specdec.tuning.candidates import Candidate, Gain, Verdict, decide, make_candidates
from ov_specdec.tuning.search import Refused, Trial
from ov_specdec.tuning.tuner import Tuner, Tuning

__all__ = [
    "Budget",
    "Candidate",
    "Gain",
    "Refused",
    "Trial",
    "Tuner",
    "Tuning",
    "Verdict",
    "decide",
    "make_candidates",
]
