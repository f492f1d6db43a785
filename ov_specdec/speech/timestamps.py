"""Whisper's rule for timestamps, as a logits processor."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ov_specdec.logits import Logits
from ov_specdec.speech.settings import WhisperSettings


@dataclass(frozen=True)
class TimestampRule:
    """Has timestamps come first, in pairs, and in their order; and before text if more likely.

    They come in pairs but for one before the end, none is earlier than the last, none in a pair's
    first place repeats it, and none is later than `max_initial_timestamp_index` at first. Where all
    timestamps together are more likely than any other token, one of them has to come. As with all
    processors, the tokens hold the draft tokens before a row. begin: length of start and prompt.
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
