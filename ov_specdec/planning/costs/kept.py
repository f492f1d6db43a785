"""Cost curves in the user's cache folder."""

import math
from pathlib import Path
from typing import Any

from ov_specdec.files import read_kept, write_kept
from ov_specdec.planning.costs.curve import CostCurve, PassCurve

VERSION = 6


def read_curve(path: Path | None) -> CostCurve | None:
    """The curve in a file; None if there is no valid one."""

    def read(content: dict[str, Any]) -> CostCurve:
        draft = content["draft"]
        return CostCurve(
            _pass_curve(content["main"]),
            None if draft is None else _pass_curve(draft),
            int(content["sweeps"]),
        )

    return read_kept(path, VERSION, read)


def write_curve(path: Path, curve: CostCurve) -> None:
    """Write a curve to a file; warns if the folder cannot be written."""
    write_kept(path, VERSION, curve_as_dict(curve), "the cost curve", "measures it")


def curve_as_dict(curve: CostCurve) -> dict[str, Any]:
    """A curve for JSON."""
    return {
        "main": _as_dict(curve.main),
        "draft": None if curve.draft is None else _as_dict(curve.draft),
        "sweeps": curve.sweeps,
    }


def _as_dict(curve: PassCurve) -> dict[str, Any]:
    rows = {str(cached): dict(row) for cached, row in curve.seconds.items()}
    return {
        "seconds": rows,
        "change": curve.change,
        "per_sequence": curve.per_sequence,
        "saved": curve.saved,
    }


def _pass_curve(content: Any) -> PassCurve:
    """Parse a curve; `ValueError` for invalid times."""
    seconds = {
        int(cached): {int(size): float(value) for size, value in row.items()}
        for cached, row in content["seconds"].items()
    }
    extras = [float(content[name]) for name in ("change", "per_sequence", "saved")]
    values = [value for row in seconds.values() for value in row.values()]
    if (
        not all(seconds.values())
        or not values
        or not all(0.0 <= extra < math.inf for extra in extras)
    ):
        raise ValueError("rows without times")
    if not all(0.0 < value < math.inf for value in values):
        raise ValueError("invalid times")
    change, per_sequence, saved = extras
    return PassCurve(seconds, change, per_sequence, saved)
