"""Hand-made models of a few tokens: logits are a function of the last tokens."""

from collections.abc import Callable, Sequence

import numpy as np

from ov_specdec.runner.base import Logits

Model = Callable[[Sequence[int]], Logits]
"""From all tokens so far to the logits [vocab] of the next one; a script of a `ScriptedModel`."""


def table_model(weights: np.ndarray) -> Model:
    """The next token's weights by the last token: row `tokens[-1]` of weights [vocab, vocab].

    Mask tokens, which are those outside the vocabulary, count as one token more each.
    """
    with np.errstate(divide="ignore"):
        logits = np.log(np.asarray(weights, np.float64)).astype(np.float32)
    size = len(logits)

    def next_logits(tokens: Sequence[int]) -> Logits:
        known = next(i for i, token in enumerate(reversed(tokens)) if token < size)
        return logits[(tokens[-1 - known] + known) % size]

    return next_logits
