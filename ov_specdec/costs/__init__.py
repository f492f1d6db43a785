"""What passes of the models cost on this machine: measured, kept in a file, corrected in use."""

from ov_specdec.costs.correction import FixedCurve, LiveCurve
from ov_specdec.costs.curve import GRID, NOMINAL, SIZES, CostCurve, PassCurve
from ov_specdec.costs.kept import curve_as_dict
from ov_specdec.costs.measure import Compare, no_comparison
from ov_specdec.costs.source import Costs, KeptCosts, Progress

__all__ = [
    "GRID",
    "NOMINAL",
    "SIZES",
    "Compare",
    "CostCurve",
    "Costs",
    "FixedCurve",
    "KeptCosts",
    "LiveCurve",
    "PassCurve",
    "Progress",
    "curve_as_dict",
    "no_comparison",
]
