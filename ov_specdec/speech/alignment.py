"""When tokens are spoken: the cheapest path through what a decoder attends to.

Source: `find_alignment` of openai/whisper; `_extract_token_timestamps` of transformers, which these
times equal.
"""

import numpy as np
from numpy.typing import NDArray

from ov_specdec.speech.settings import TIME_PRECISION

DIAGONAL, NEXT_TOKEN, NEXT_PLACE = 0, 1, 2
"""How a path comes to a place: with the next token or not, at the next place or not."""


def token_times(weights: NDArray[np.float32], filter_width: int) -> list[float]:
    """When each token ends and the next one begins, in seconds from the beginning of the window.

    It is when the attention leaves the token before: a row of weights is that of the token which
    the model reads, and writes the next one by.

    weights: by which heads attend to the places of a window, [heads, tokens, places]; a place is
    `TIME_PRECISION` long. filter_width: places that the median filter looks at; odd.
    """
    # Head by head: the filter takes many times the memory of what it filters.
    matched = np.mean([_match(head, filter_width) for head in weights], axis=0)
    return [place * TIME_PRECISION for place in first_places(-matched.astype(np.float64))]


def _match(weights: NDArray[np.float32], filter_width: int) -> NDArray[np.float32]:
    """How well tokens and places match by one head, [tokens, places], each place on one scale."""
    deviation = weights.std(axis=0)
    centred = weights - weights.mean(axis=0)
    scaled = np.divide(centred, deviation, out=np.zeros_like(centred), where=deviation > 0)
    return median_filter(scaled, filter_width)


def median_filter(values: NDArray[np.float32], width: int) -> NDArray[np.float32]:
    """The median of so many neighbours along the last axis; edges are reflected."""
    half = width // 2
    if values.shape[-1] <= half:
        return values
    padding = [(0, 0)] * (values.ndim - 1) + [(half, half)]
    padded = np.pad(values, padding, mode="reflect")
    windows = np.lib.stride_tricks.sliding_window_view(padded, width, axis=-1)
    filtered: NDArray[np.float32] = np.partition(windows, half, axis=-1)[..., half]
    return filtered


def first_places(costs: NDArray[np.float64]) -> list[int]:
    """Dynamic time warping: the place at which the cheapest path comes to each token.

    costs: of each token at each place, [tokens, places]. A path begins with the first token at the
    first place, ends with the last at the last, and goes to the next token, place, or both.
    """
    num_tokens, num_places = costs.shape
    trace = _cheapest_steps(costs)
    first = [0] * num_tokens
    token, place = num_tokens, num_places
    while token > 0 and place > 0:
        first[token - 1] = place - 1
        step = trace[token, place]
        token -= int(step != NEXT_PLACE)
        place -= int(step != NEXT_TOKEN)
    return first


def _cheapest_steps(costs: NDArray[np.float64]) -> NDArray[np.int8]:
    """The last step of the cheapest path to each token and place, [tokens + 1, places + 1].

    Cells of an antidiagonal do not depend on each other, so they are computed at once.
    """
    num_tokens, num_places = costs.shape
    total = np.full((num_tokens + 1, num_places + 1), np.inf, np.float32)
    trace = np.full(total.shape, NEXT_PLACE, np.int8)
    total[0, 0] = 0.0
    for diagonal in range(2, num_tokens + num_places + 1):
        tokens = np.arange(max(1, diagonal - num_places), min(num_tokens, diagonal - 1) + 1)
        places = diagonal - tokens
        both, above = total[tokens - 1, places - 1], total[tokens - 1, places]
        before = total[tokens, places - 1]
        best = np.where((above < both) & (above < before), NEXT_TOKEN, NEXT_PLACE)
        best[(both < above) & (both < before)] = DIAGONAL
        trace[tokens, places] = best
        least = np.choose(best, (both, above, before))
        total[tokens, places] = costs[tokens - 1, places - 1] + least
    return trace
