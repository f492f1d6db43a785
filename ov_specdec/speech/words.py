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


def timed_words(
    spoken: Sequence[SpokenToken],
    decode: Callable[[Sequence[int]], str],
    language: str | None,
) -> Iterator[Word]:
    """The words of text tokens with their times. language: a code; None: any."""
    first = 0
    for text, num_tokens in split_words([each.token for each in spoken], decode, language):
        own = spoken[first : first + num_tokens]
        yield Word(own[0].start, own[-1].end, text)
        first += num_tokens


def split_words(
    tokens: Sequence[int], decode: Callable[[Sequence[int]], str], language: str | None
) -> list[tuple[str, int]]:
    """Split text tokens into words, each with its number of tokens. language: a code; None: any."""
    words: list[tuple[str, int]] = []
    for text, num_tokens in _characters(tokens, decode):
        begins = text.startswith(" ") or text.strip() in punctuation
        if language in WITHOUT_SPACES or begins or not words:
            words.append((text, num_tokens))
        else:
            words[-1] = words[-1][0] + text, words[-1][1] + num_tokens
    return _with_punctuation(words)


def _characters(
    tokens: Sequence[int], decode: Callable[[Sequence[int]], str]
) -> Iterator[tuple[str, int]]:
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


def _with_punctuation(words: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    """The words, each with the punctuation that belongs to it."""
    from_last: list[tuple[str, int]] = []
    for text, size in reversed(words):
        if from_last and text.startswith(" ") and text.strip() in BEFORE:
            from_last[-1] = text + from_last[-1][0], size + from_last[-1][1]
        else:
            from_last.append((text, size))
    joined: list[tuple[str, int]] = []
    for text, size in reversed(from_last):
        if joined and not joined[-1][0].endswith(" ") and text in BEHIND:
            joined[-1] = joined[-1][0] + text, joined[-1][1] + size
        else:
            joined.append((text, size))
    return joined
