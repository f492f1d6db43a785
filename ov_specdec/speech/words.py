"""Words with times.

Source: `split_to_word_tokens` and `merge_punctuations` of openai/whisper, as in transformers.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from string import punctuation
from typing import Any

BEFORE = "\"'“¡¿([{-"
"""Punctuation that belongs to the word after it."""

BEHIND = "\"'.。,，!！?？:：”)]}、"  # noqa: RUF001
"""Punctuation that belongs to the word before it."""

WITHOUT_SPACES = ("zh", "ja", "th", "lo", "my", "yue")
"""Languages written without spaces: each of their characters counts as a word."""

INCOMPLETE = "\N{REPLACEMENT CHARACTER}"
"""The decoding of bytes that form no whole character."""


@dataclass(frozen=True)
class Word:
    """A word with the space and the punctuation around it. start, end: in seconds."""

    start: float
    end: float
    text: str

    def as_dict(self) -> dict[str, Any]:
        """For JSON, as openai/whisper names it."""
        return {"word": self.text, "start": self.start, "end": self.end}


@dataclass(frozen=True)
class SpokenToken:
    """A token with its times, in seconds."""

    token: int
    start: float
    end: float


@dataclass(frozen=True)
class Piece:
    """A part of a text, with its number of tokens."""

    text: str
    num_tokens: int

    def __add__(self, other: "Piece") -> "Piece":
        return Piece(self.text + other.text, self.num_tokens + other.num_tokens)


def timed_words(
    spoken: Sequence[SpokenToken],
    decode: Callable[[Sequence[int]], str],
    language: str | None,
) -> Iterator[Word]:
    """The words of text tokens with their times. language: a code; None: any."""
    place = 0
    for piece in split_words([each.token for each in spoken], decode, language):
        own = spoken[place : place + piece.num_tokens]
        yield Word(own[0].start, own[-1].end, piece.text)
        place += piece.num_tokens


def split_words(
    tokens: Sequence[int], decode: Callable[[Sequence[int]], str], language: str | None
) -> list[Piece]:
    """Split text tokens into words. language: a code; None: any."""
    pieces = list(_characters(tokens, decode))
    words: list[Piece] = []
    for piece in pieces:
        begins = piece.text.startswith(" ") or piece.text.strip() in punctuation
        if language in WITHOUT_SPACES or begins or not words:
            words.append(piece)
        else:
            words[-1] += piece
    return _with_punctuation(words)


def _characters(tokens: Sequence[int], decode: Callable[[Sequence[int]], str]) -> Iterator[Piece]:
    """The shortest runs of tokens that are whole characters."""
    whole, offset, run = decode(tokens), 0, list[int]()
    for token in tokens:
        run.append(token)
        text = decode(run)
        place = text.find(INCOMPLETE)
        # The text itself may contain U+FFFD.
        if place < 0 or whole[offset + place : offset + place + 1] == INCOMPLETE:
            yield Piece(text, len(run))
            offset, run = offset + len(text), []
    if run:
        yield Piece(decode(run), len(run))


def _with_punctuation(words: Sequence[Piece]) -> list[Piece]:
    """The words, each with the punctuation that belongs to it."""
    from_last: list[Piece] = []
    for word in reversed(words):
        if from_last and word.text.startswith(" ") and word.text.strip() in BEFORE:
            from_last[-1] = word + from_last[-1]
        else:
            from_last.append(word)
    joined: list[Piece] = []
    for word in reversed(from_last):
        if joined and not joined[-1].text.endswith(" ") and word.text in BEHIND:
            joined[-1] += word
        else:
            joined.append(word)
    return joined
