"""What passes of the models cost on this machine: measured, kept in a file, corrected in use."""

from ov_specdec.costs.curve import NOMINAL, SIZES, CostCurve, PassCurve

__all__ = ["NOMINAL", "SIZES", "CostCurve", "PassCurve"]
