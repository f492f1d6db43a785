"""The sizes of passes that static shapes are worth most for."""

from collections.abc import Collection, Mapping

import numpy as np

from ov_specdec.planning.costs import GRID, PassCurve

GUESSED_SHARE = 0.15
"""Of a pass over one token, saved by a static shape that nobody has timed: it was 0.13 to 0.25."""


def most_saving(
    demand: Mapping[int, float], curve: PassCurve, allowed: Collection[int] = GRID
) -> tuple[int, float]:
    """The size whose static shape would save most time beside those that there are.

    demand: passes by the tokens that they would have. A pass may be padded to a larger static
    shape; without one it also pays for the change of size. Returns the size, and the part of the
    time that it saves: (0, 0.0) where none does.
    """
    wished = np.array(sorted(size for size in demand if size > 0), int)
    if not len(wished):
        return 0, 0.0
    dynamic = curve.dynamic(0, max(int(wished[-1]), *allowed), 0)
    saved = curve.saved or GUESSED_SHARE * float(dynamic[1])
    times = np.array([demand[size] for size in wished.tolist()], float)

    def with_shape(size: int) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
        return np.where(wished <= size, dynamic[size] - saved, np.inf)

    # So probable is it that the pass before had another size.
    now = dynamic[wished] + curve.change * (1.0 - times / times.sum())
    for size in curve.static:
        if size < len(dynamic):
            now = np.minimum(now, with_shape(size))
    # Larger ones would only seem to cost less, where the curve is noisy.
    enough = min((size for size in allowed if size >= wished[-1]), default=max(allowed))
    candidates = [size for size in allowed if size <= enough and size not in curve.static]
    gains = [float(times @ (now - np.minimum(now, with_shape(size)))) for size in candidates]
    best = int(np.argmax(gains)) if gains else 0
    if not gains or gains[best] <= 0.0:
        return 0, 0.0
    return candidates[best], gains[best] / float(times @ now)
