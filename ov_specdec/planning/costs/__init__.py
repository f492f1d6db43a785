"""Cost curves of passes on this machine: measured, kept in a file, corrected in use."""

from ov_specdec.planning.costs.correction import Costs, FixedCurve, LiveCurve, Progress
from ov_specdec.planning.costs.curve import GRID, NOMINAL, SIZES, CostCurve, PassCurve, Role

__all__ = [
    "GRID",
    "NOMINAL",
    "SIZES",
    "CostCurve",
    "Costs",
    "FixedCurve",
    "LiveCurve",
    "PassCurve",
    "Progress",
    "Role",
]
