"""Times of tokens: the cheapest path through the decoder's cross-attention.

Source: `find_alignment` of openai/whisper. The times equal those of transformers
(`_extract_token_timestamps`).
"""

import numpy as np
from numpy.typing import NDArray

from ov_specdec.speech.settings import TIME_PRECISION

DIAGONAL, NEXT_TOKEN, NEXT_POSITION = 0, 1, 2
"""Steps of a path: to the next token and position, to the next token, or to the next position."""


def token_times(weights: NDArray[np.float32], filter_width: int) -> list[float]:
    """Boundaries between tokens, in seconds from the beginning of the window.

    A row of weights belongs to the input token, from which the model predicts the next one.

    weights: cross-attention of the alignment heads, [heads, tokens, positions]; a position is
    `TIME_PRECISION` seconds long. filter_width: positions in the median filter; odd.
    """
    # Head by head: the filter takes many times the memory of its input.
    matched = np.mean([_match(head, filter_width) for head in weights], axis=0)
    return [position * TIME_PRECISION for position in first_positions(-matched.astype(np.float64))]


def _match(weights: NDArray[np.float32], filter_width: int) -> NDArray[np.float32]:
    """How well a head matches tokens and positions, normalized for each position."""
    deviation = weights.std(axis=0)
    centred = weights - weights.mean(axis=0)
    scaled = np.divide(centred, deviation, out=np.zeros_like(centred), where=deviation > 0)
    return median_filter(scaled, filter_width)


def median_filter(values: NDArray[np.float32], width: int) -> NDArray[np.float32]:
    """The median of `width` neighbours along the last axis, with reflected edges."""
    half = width // 2
    if values.shape[-1] <= half:
        return values
    padding = [(0, 0)] * (values.ndim - 1) + [(half, half)]
    padded = np.pad(values, padding, mode="reflect")
    windows = np.lib.stride_tricks.sliding_window_view(padded, width, axis=-1)
    filtered: NDArray[np.float32] = np.partition(windows, half, axis=-1)[..., half]
    return filtered


def first_positions(costs: NDArray[np.float64]) -> list[int]:
    """Dynamic time warping: the position at which the cheapest path reaches each token.

    costs: of each token at each position, [tokens, positions]. A path begins with the first token
    at the first position, ends with the last at the last, and goes to the next token, position, or
    both.
    """
    num_tokens, num_positions = costs.shape
    trace = _cheapest_steps(costs)
    first = [0] * num_tokens
    token, position = num_tokens, num_positions
    while token > 0 and position > 0:
        first[token - 1] = position - 1
        step = trace[token, position]
        token -= int(step != NEXT_POSITION)
        position -= int(step != NEXT_TOKEN)
    return first


def _cheapest_steps(costs: NDArray[np.float64]) -> NDArray[np.int8]:
    """The last step of the cheapest path to each token and position, [tokens + 1, positions + 1].

    Cells of an antidiagonal do not depend on each other, so they are computed at once.
    """
    num_tokens, num_positions = costs.shape
    total = np.full((num_tokens + 1, num_positions + 1), np.inf, np.float32)
    trace = np.full(total.shape, NEXT_POSITION, np.int8)
    total[0, 0] = 0.0
    for diagonal in range(2, num_tokens + num_positions + 1):
        tokens = np.arange(max(1, diagonal - num_positions), min(num_tokens, diagonal - 1) + 1)
        positions = diagonal - tokens
        both, above = total[tokens - 1, positions - 1], total[tokens - 1, positions]
        before = total[tokens, positions - 1]
        best = np.where((above < both) & (above < before), NEXT_TOKEN, NEXT_POSITION)
        best[(both < above) & (both < before)] = DIAGONAL
        trace[tokens, positions] = best
        least = np.choose(best, (both, above, before))
        total[tokens, positions] = costs[tokens - 1, positions - 1] + least
    return trace
