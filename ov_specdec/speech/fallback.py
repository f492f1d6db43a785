"""When a window's output is not taken: it is tried again at a higher temperature, or left out.

Source: section 4.5 of Radford et al. (arXiv 2212.04356), as transformers has it.
"""

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from ov_specdec.speech.options import TranscriptionOptions

LOW_TEMPERATURE = 0.5
"""Below it, an output is trusted so far that the next window is told of it."""


@dataclass(frozen=True)
class Attempt:
    """A window's output at one temperature.

    tokens: with the end-of-sequence token, where there is one. avg_logprob: the mean
    log-probability of them, after the processors and without temperature; None where nothing
    depends on it. no_speech_prob: None likewise.
    """

    tokens: tuple[int, ...]
    temperature: float
    compression_ratio: float
    avg_logprob: float | None = None
    no_speech_prob: float | None = None

    @property
    def is_trusted(self) -> bool:
        """Whether the next window is to be told of it."""
        return self.temperature < LOW_TEMPERATURE

    def has_no_speech(self, options: TranscriptionOptions) -> bool:
        """Whether the model takes the window for silence, and is not sure of its output either."""
        limit = options.no_speech_threshold
        if limit is None or self.no_speech_prob is None:
            return False
        return self.is_unlikely(options) and self.no_speech_prob > limit

    def is_rejected(self, options: TranscriptionOptions) -> bool:
        """Whether it repeats itself, or is unlikely, so that it is to be tried again."""
        limit = options.compression_ratio_threshold
        repeats = limit is not None and self.compression_ratio > limit
        return (repeats or self.is_unlikely(options)) and not self.has_no_speech(options)

    def is_unlikely(self, options: TranscriptionOptions) -> bool:
        """Whether the model is not sure of it."""
        limit = options.logprob_threshold
        return limit is not None and self.avg_logprob is not None and self.avg_logprob < limit


def compression_ratio(tokens: Sequence[int], vocab_size: int) -> float:
    """How much zlib shortens the tokens' bytes; text that repeats itself has a high one."""
    if not tokens:
        return 0.0
    size = int(math.log2(vocab_size) / 8) + 1
    content = b"".join(token.to_bytes(size, "little") for token in tokens)
    return len(content) / len(zlib.compress(content))
