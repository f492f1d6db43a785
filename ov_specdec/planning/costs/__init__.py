"""Cost curves of passes on this machine: measured, kept in a file, corrected in use."""

from ov_specdec.planning.costs.correction import FixedCurve, LiveCurve
from ov_specdec.planning.costs.curve import GRID, NOMINAL, SIZES, CostCurve, PassCurve, Role
from ov_specdec.planning.costs.kept import curve_as_dict
from ov_specdec.planning.costs.measure import Compare, no_comparison
from ov_specdec.planning.costs.source import Costs, KeptCosts, Progress

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
    "Role",
    "curve_as_dict",
    "no_comparison",
]
