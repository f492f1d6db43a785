"""Warpers such as temperature and top_k: turn a row of logits into a distribution."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ov_specdec.sampling.distribution import Distribution, Ids
from ov_specdec.sampling.logits import Logits, check_row

FIRST_LOOK = 2048
"""Tokens that typical_p and top_p sort first; only flatter rows sort more."""

TEMPERATURES = (1e-30, 1e30)
"""A bound within float32; greater values change nothing."""

Mask = NDArray[np.bool_]
Weights = NDArray[np.float64]
"""Probabilities up to a common factor, the greatest at most 1."""


@dataclass(frozen=True)
class LogitsWarper:
    """Softmax with the sampling options of transformers, applied in the same order.

    temperature: above 0; divides the logits. top_k: keeps the k most likely tokens, and all that
    tie with the last of them; None and 0 keep all. top_p: from 0 to 1; keeps the fewest most
    likely tokens whose mass reaches it, one at least. min_p: from 0 to 1; drops tokens less likely
    than this fraction of the most likely one. typical_p: above 0, at most 1; keeps the tokens whose
    surprise is closest to the entropy, until their mass reaches it. The last three act on the
    normalized result of the options before them; 1, 0 and 1 keep all.

    Source: `TemperatureLogitsWarper`, `TopKLogitsWarper`, `TopPLogitsWarper`, `MinPLogitsWarper`
    and `TypicalLogitsWarper` of transformers. Of tokens that tie at the edge of top_p, where
    transformers keeps any, the lowest ids stay.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    min_p: float = 0.0
    typical_p: float = 1.0

    def __call__(self, logits: Logits) -> Distribution:
        """The distribution for one row of logits [vocab]; -inf forbids a token.

        Raises `LogitsError` for a row that gives none.
        """
        peak = check_row(logits)
        ids = None
        if self.top_k and 0 < self.top_k < len(logits):
            rank = len(logits) - self.top_k
            ids = (logits >= np.partition(logits, rank)[rank]).nonzero()[0]
            logits = logits[ids]
        least, most = TEMPERATURES
        weights = _weights(logits, peak, np.float32(min(max(self.temperature, least), most)))
        if self.top_p < 1.0:
            ids, weights = _select(_nucleus(weights, self.top_p), ids, weights)
        if self.min_p > 0.0:
            ids, weights = _keep(weights >= self.min_p * weights.max(), ids, weights)
        if self.typical_p < 1.0:
            ids, weights = _keep(weights > 0.0, ids, weights)
            ids, weights = _keep(_is_typical(weights, self.typical_p), ids, weights)
        return Distribution(ids, weights / weights.sum())


def _weights(logits: Logits, peak: float, temperature: np.float32) -> Weights:
    """Exponentials of the logits over the temperature; the peak's is 1."""
    # Values beyond the range of floats become -inf, and their weight 0, as they should.
    with np.errstate(over="ignore"):
        # Logits are float32, so their exponentials need no more; sums of them do.
        weights: Logits = logits - np.float32(peak)
        if temperature != 1.0:
            weights /= temperature
        np.exp(weights, out=weights)
    return weights.astype(np.float64)


def _nucleus(weights: Weights, top_p: float) -> Ids:
    """The indices of the fewest greatest weights that reach `top_p` of the sum."""
    total = weights.sum()
    # Weights under this floor sum to less than may be dropped, so none of them is needed.
    # The greatest weight is 1.
    floor = min((1.0 - top_p) * total / len(weights), 1.0)
    inner = weights[weights >= floor]
    if len(inner) > FIRST_LOOK:
        greatest = np.partition(inner, -FIRST_LOOK)[-FIRST_LOOK:]
        # Sums in another order round differently, so require slightly more than the goal.
        if greatest.sum() > top_p * total * (1.0 + 1e-9):
            inner = greatest
    inner.sort()
    mass = inner[::-1].cumsum()
    # A weight stays if those above it do not reach the goal; so the first always stays.
    count = min(int(mass.searchsorted(top_p * total)) + 1, len(inner))
    edge = inner[-count]
    indices: Ids = (weights >= edge).nonzero()[0]
    surplus = len(indices) - count
    if surplus > 0:  # of those that tie at the edge, the last ones go
        ties = (weights[indices] == edge).nonzero()[0]
        return np.delete(indices, ties[-surplus:])
    return indices


def _is_typical(weights: Weights, typical_p: float) -> Mask:
    """Which weights have the surprise closest to the entropy; all `weights` are above 0.

    Source: Meister et al. (arXiv 2202.00666).
    """
    total = weights.sum()
    # Surprise is log(total) - log(weight), and the entropy is its mean: log(total) cancels out.
    logs = np.log(weights)
    distances = np.abs(logs - (weights * logs).sum() / total)
    goal = typical_p * total
    closest = np.arange(len(distances))
    if len(distances) > FIRST_LOOK:
        near = distances <= np.partition(distances, FIRST_LOOK - 1)[FIRST_LOOK - 1]
        closest = np.flatnonzero(near) if weights[near].sum() >= goal else closest
    closest = closest[np.argsort(distances[closest])]
    mass = weights[closest].cumsum()
    last = closest[min(int(mass.searchsorted(goal)), len(closest) - 1)]
    keep: Mask = distances <= distances[last]
    return keep


def _keep(keep: Mask, ids: Ids | None, weights: Weights) -> tuple[Ids | None, Weights]:
    """Ids and weights where `keep` is true; None stands for all ids, before and after."""
    return _select(keep.nonzero()[0], ids, weights)


def _select(indices: Ids, ids: Ids | None, weights: Weights) -> tuple[Ids | None, Weights]:
    """Ids and weights at some indices; None stands for all ids, before and after."""
    if len(indices) == len(weights):
        return ids, weights
    return (indices if ids is None else ids[indices]), weights[indices]
