"""Words with times: the cheapest path through the decoder's cross-attention, and words of tokens.

Source: `find_alignment`, `split_to_word_tokens` and `merge_punctuations` of openai/whisper. Times
and words equal those of transformers.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from string import punctuation

import numpy as np
from numpy.typing import NDArray

from ov_specdec.speech.settings import TIME_PRECISION

DIAGONAL, NEXT_TOKEN, NEXT_POSITION = 0, 1, 2
"""Steps of a path: to the next token and position, to the next token, or to the next position."""

BEFORE = "\"'“¡¿([{-"
"""Punctuation that belongs to the word after it."""

BEHIND = "\"'.。,，!！?？:：”)]}、"  # noqa: RUF001
"""Punctuation that belongs to the word before it."""

WITHOUT_SPACES = ("zh", "ja", "th", "lo", "my", "yue")
"""Languages written without spaces: each of their characters counts as a word."""

INCOMPLETE = "\N{REPLACEMENT CHARACTER}"
"""The decoding of bytes that form no whole character."""

Decode = Callable[[Sequence[int]], str]

Piece = tuple[str, int]
"""A text and its number of tokens."""

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


def timed_words(spoken: Sequence[Spoken], decode: Decode, language: str | None) -> Iterator[Word]:
    """The words of text tokens with their times. language: a code; None: any."""
    first = 0
    for text, num_tokens in split_words([token for token, *_ in spoken], decode, language):
        last = first + num_tokens - 1
        yield Word(spoken[first][1], spoken[last][2], text)
        first = last + 1


def split_words(tokens: Sequence[int], decode: Decode, language: str | None) -> list[Piece]:
    """Split text tokens into words, each with its number of tokens. language: a code; None: any."""

    def continues(_: str, text: str) -> bool:
        begins = text.startswith(" ") or text.strip() in punctuation
        return language not in WITHOUT_SPACES and not begins

    words = _join(_characters(tokens, decode), continues)
    words = _join(words, lambda before, _: before.startswith(" ") and before.strip() in BEFORE)
    return _join(words, lambda before, text: not before.endswith(" ") and text in BEHIND)


def _join(pieces: Iterable[Piece], joins: Callable[[str, str], bool]) -> list[Piece]:
    """The pieces, each joined to the one before it if `joins` is true of the texts of the two."""
    joined, before = list[Piece](), None
    for text, size in pieces:
        if before is not None and joins(before, text):
            joined[-1] = joined[-1][0] + text, joined[-1][1] + size
        else:
            joined.append((text, size))
        before = text
    return joined


def _characters(tokens: Sequence[int], decode: Decode) -> Iterator[Piece]:
    """The shortest runs of tokens that are whole characters: their text and number."""
    whole, offset, run = decode(tokens), 0, list[int]()
    for token in tokens:
        run.append(token)
        text = decode(run)
        position = text.find(INCOMPLETE)
        # The text itself may contain U+FFFD.
        if position < 0 or whole[offset + position : offset + position + 1] == INCOMPLETE:
            yield text, len(run)
            offset, run = offset + len(text), []
    if run:
        yield decode(run), len(run)
