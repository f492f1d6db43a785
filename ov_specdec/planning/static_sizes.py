"""Chooses the sizes of static shapes that save most time."""

from collections.abc import Collection, Mapping

import numpy as np

from ov_specdec.planning.costs import GRID, PassCurve

GUESSED_SHARE = 0.15
"""Default saving of a static shape, in passes over one token: measured 0.13 to 0.25."""


def most_saving(
    demand: Mapping[int, float], curve: PassCurve, allowed: Collection[int] = GRID
) -> tuple[int, float]:
    """The size whose static shape would save most time, given the existing ones.

    demand: counts of passes by number of tokens. A pass may be padded to a larger static shape;
    without one it also pays for changes of size. Returns the size and the fraction of time that it
    saves: (0, 0.0) if none saves time.
    """
    wished = np.array(sorted(size for size in demand if size > 0), int)
    if not len(wished):
        return 0, 0.0
    dynamic = curve.dynamic(0, max(int(wished[-1]), *allowed), 0)
    saved = curve.saved or GUESSED_SHARE * float(dynamic[1])
    times = np.array([demand[size] for size in wished.tolist()], float)

    def with_shape(size: int) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
        return np.where(wished <= size, dynamic[size] - saved, np.inf)

    # The probability that the previous pass had another size.
    now = dynamic[wished] + curve.change * (1.0 - times / times.sum())
    for size in curve.static:
        if size < len(dynamic):
            now = np.minimum(now, with_shape(size))
    # Larger passes can only seem to cost less because of noise in the curve.
    enough = min((size for size in allowed if size >= wished[-1]), default=max(allowed))
    candidates = [size for size in allowed if size <= enough and size not in curve.static]
    gains = [float(times @ (now - np.minimum(now, with_shape(size)))) for size in candidates]
    best = int(np.argmax(gains)) if gains else 0
    if not gains or gains[best] <= 0.0:
        return 0, 0.0
    return candidates[best], gains[best] / float(times @ now)
