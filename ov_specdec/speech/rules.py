"""Whisper's rules for tokens, as logits processors: suppressed ones, and timestamps."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ov_specdec.sampling.logits import Logits
from ov_specdec.sampling.processors import LogitsProcessor, SuppressTokens
from ov_specdec.speech.settings import WhisperSettings


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


@dataclass(frozen=True)
class TimestampRule:
    """Forces timestamps first, in pairs and in order, and before text if they are more likely.

    Timestamps come in pairs, except for one at the end. They never decrease, the first of a pair
    is later than the last pair, and the first of all is at most `max_initial_timestamp_index`. If
    all timestamps together are more likely than any other token, one of them must follow.
    begin: length of start and prompt.
    Source: `WhisperTimeStampLogitsProcessor` of transformers; Radford et al. (arXiv 2212.04356).
    """

    settings: WhisperSettings
    begin: int

    def __call__(self, tokens: Sequence[int], logits: Logits) -> Logits:
        """The row with -inf at the tokens that the rule forbids."""
        first = self.settings.timestamp_begin
        result = logits.copy()
        result[self.settings.no_timestamps_token_id] = -np.inf
        output = tokens[self.begin :]
        if not output:
            result[:first] = -np.inf
            latest = self.settings.max_initial_timestamp_index
            if latest is not None:
                result[first + latest + 1 :] = -np.inf
            return result
        after_timestamp = output[-1] >= first
        in_pair = after_timestamp and (len(output) < 2 or output[-2] >= first)
        if in_pair:
            result[first:] = -np.inf
        elif after_timestamp:
            result[: self.settings.eos_token_id] = -np.inf
        if last := next((token for token in reversed(output) if token >= first), 0):
            opens_pair = after_timestamp and not in_pair
            result[first : last if opens_pair else last + 1] = -np.inf
        if self._prefers_timestamp(result):
            result[:first] = -np.inf
        return result

    def _prefers_timestamp(self, row: Logits) -> bool:
        """Whether the timestamps together are more likely than every other token."""
        first = self.settings.timestamp_begin
        text, timestamps = row[:first], row[first:]
        peak = timestamps.max(initial=-np.inf)
        if peak == -np.inf:
            return False
        return bool(peak + np.log(np.exp(timestamps - peak).sum()) > text.max())


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
