"""Tokens that a Whisper's configuration suppresses, as logits processors."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ov_specdec.logits import Logits
from ov_specdec.sampling.processors import LogitsProcessor, SuppressTokens
from ov_specdec.speech.settings import WhisperSettings
from ov_specdec.speech.timestamps import TimestampRule


@dataclass(frozen=True)
class SuppressAtBegin:
    """Forbids some tokens at the start of the output: for Whisper, the end and a space.

    begin: length of start and prompt. Source: `SuppressTokensAtBeginLogitsProcessor`.
    """

    suppress_tokens: SuppressTokens
    begin: int

    def __call__(self, tokens: Sequence[int], logits: Logits) -> Logits:
        """The row, with -inf at those tokens if nothing was generated yet."""
        return self.suppress_tokens(tokens, logits) if len(tokens) == self.begin else logits


@dataclass(frozen=True)
class AllowOnly:
    """Forbids all tokens except some. allowed: their ids."""

    allowed: tuple[int, ...]

    def __call__(self, tokens: Sequence[int], logits: Logits) -> Logits:  # noqa: ARG002
        """The row with -inf at all others; the history does not matter."""
        result = np.full_like(logits, -np.inf)
        ids = list(self.allowed)
        result[ids] = logits[ids]
        return result


def whisper_processors(
    settings: WhisperSettings, begin: int, *, timestamps: bool
) -> list[LogitsProcessor]:
    """Whisper's own rules, in the order of transformers. begin: length of start and prompt."""
    at_begin = SuppressAtBegin(SuppressTokens(settings.begin_suppress_tokens), begin)
    chain: list[tuple[bool, LogitsProcessor]] = [
        (bool(settings.begin_suppress_tokens), at_begin),
        (bool(settings.suppress_tokens), SuppressTokens(settings.suppress_tokens)),
        (timestamps, TimestampRule(settings, begin)),
    ]
    return [processor for wanted, processor in chain if wanted]
