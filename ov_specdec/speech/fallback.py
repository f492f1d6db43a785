"""Temperature fallback: a rejected output of a window is retried or dropped.

Source: section 4.5 of Radford et al. (arXiv 2212.04356), as in transformers.
"""

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from ov_specdec.speech.options import TranscriptionOptions

LOW_TEMPERATURE = 0.5
"""Outputs at lower temperatures condition the next window."""


@dataclass(frozen=True)
class Attempt:
    """A window's output at one temperature.

    tokens: with the end-of-sequence token, if there is one. avg_logprob: their mean
    log-probability, after the processors and without temperature; None if no option needs it.
    no_speech_prob: None likewise.
    """

    tokens: tuple[int, ...]
    temperature: float
    compression_ratio: float
    avg_logprob: float | None = None
    no_speech_prob: float | None = None

    @property
    def is_trusted(self) -> bool:
        """Whether it conditions the next window."""
        return self.temperature < LOW_TEMPERATURE

    def has_no_speech(self, options: TranscriptionOptions) -> bool:
        """Whether silence is likely, and the output is not."""
        limit = options.no_speech_threshold
        if limit is None or self.no_speech_prob is None:
            return False
        return self.is_unlikely(options) and self.no_speech_prob > limit

    def is_rejected(self, options: TranscriptionOptions) -> bool:
        """Whether it repeats itself or is unlikely, and should be retried."""
        limit = options.compression_ratio_threshold
        repeats = limit is not None and self.compression_ratio > limit
        return (repeats or self.is_unlikely(options)) and not self.has_no_speech(options)

    def is_unlikely(self, options: TranscriptionOptions) -> bool:
        """Whether its mean log-probability is below the threshold."""
        limit = options.logprob_threshold
        return limit is not None and self.avg_logprob is not None and self.avg_logprob < limit


def compression_ratio(tokens: Sequence[int], vocab_size: int) -> float:
    """The zlib compression ratio of the tokens' bytes; high for text that repeats itself."""
    if not tokens:
        return 0.0
    size = int(math.log2(vocab_size) / 8) + 1
    content = b"".join(token.to_bytes(size, "little") for token in tokens)
    return len(content) / len(zlib.compress(content))
