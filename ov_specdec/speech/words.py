"""Words with times: the cheapest path through the decoder's cross-attention, and words of tokens.

Source: `find_alignment` of openai/whisper. Times equal those of transformers, which needs torch.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from types import SimpleNamespace

import numpy as np
from numpy.typing import NDArray

from ov_specdec.speech.settings import TIME_PRECISION

DIAGONAL, NEXT_TOKEN, NEXT_POSITION = 0, 1, 2
"""Steps of a path: to the next token and position, to the next token, or to the next position."""

Decode = Callable[[Sequence[int]], str]

Spoken = tuple[int, float, float]
"""A token with its start and end, in seconds."""


@dataclass(frozen=True)
class Word:
    """A word with the space and the punctuation around it. start, end: in seconds."""

    start: float
    end: float
    text: str


def token_times(weights: NDArray[np.float32], filter_width: int) -> list[float]:
    """Boundaries between tokens, in seconds from the beginning of the window.

    weights: cross-attention of the alignment heads, [heads, tokens, positions]; a row belongs to
    the input token, from which the model predicts the next one. filter_width: of the median; odd.
    """
    # Head by head: the filter takes many times the memory of its input.
    matched = np.mean([_match(head, filter_width) for head in weights], axis=0)
    return [position * TIME_PRECISION for position in first_positions(-matched.astype(np.float64))]


def _match(weights: NDArray[np.float32], width: int) -> NDArray[np.float32]:
    """How well a head matches tokens and positions: normalized for each position, then filtered.

    The filter takes the median of `width` neighbours, with reflected edges.
    """
    deviation, half = weights.std(axis=0), width // 2
    centred = weights - weights.mean(axis=0)
    scaled: NDArray[np.float32] = np.zeros_like(centred)
    np.divide(centred, deviation, out=scaled, where=deviation > 0)
    if scaled.shape[1] <= half:
        return scaled
    padded = np.pad(scaled, ((0, 0), (half, half)), mode="reflect")
    neighbours = np.lib.stride_tricks.sliding_window_view(padded, width, axis=1)
    filtered: NDArray[np.float32] = np.partition(neighbours, half, axis=-1)[..., half]
    return filtered


def first_positions(costs: NDArray[np.float64]) -> list[int]:
    """Dynamic time warping: the position at which the cheapest path reaches each token.

    costs: of each token at each position, [tokens, positions]. A path begins with the first token
    at the first position, ends with the last at the last, and goes to the next token, position, or
    both.
    """
    token, position = costs.shape
    trace, first = _cheapest_steps(costs), [0] * token
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


def timed_words(spoken: Sequence[Spoken], decode: Decode, language: str) -> Iterator[Word]:
    """The words of text tokens with their times. language: a code."""
    # Imports torch if that is installed.
    from transformers.models.whisper.tokenization_whisper import (
        LANGUAGES,
        _combine_tokens_into_words,
    )

    reader = SimpleNamespace(decode=lambda tokens, **_: decode(tokens), eos_token_id=inf)
    tokens = [token for token, *_ in spoken]
    words, _, places = _combine_tokens_into_words(reader, tokens, LANGUAGES[language])
    for text, own in zip(words, places, strict=True):
        yield Word(spoken[own[0]][1], spoken[own[-1]][2], text)
