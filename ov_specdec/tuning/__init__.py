"""Finds the execution properties that suit a pair of models on this machine, by measuring."""

from ov_specdec.tuning.candidates import Candidate, Gain
from ov_specdec.tuning.search import Refused, Trial
from ov_specdec.tuning.tuner import Tuner, Tuning, break_even

__all__ = ["Candidate", "Gain", "Refused", "Trial", "Tuner", "Tuning", "break_even"]
