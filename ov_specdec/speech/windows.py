"""The output of a window: where it is cut, and whether it is accepted.

A window is decoded up to the end of its last finished segment, and the next one starts there.
Source: section 4.5 of Radford et al. (arXiv 2212.04356), as in transformers.
"""

import math
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ov_specdec.results.chunks import Chunk
from ov_specdec.speech.features import FeatureExtractor
from ov_specdec.speech.settings import TIME_PRECISION, WhisperSettings


class Attempt(NamedTuple):
    """A window's output at one temperature.

    figures: by their names in a `Segment`. has_no_speech: silence is likely, and the output is not.
    is_rejected: it repeats itself or is unlikely, and should be retried.
    """

    chunks: Sequence[Chunk]
    figures: Mapping[str, Any]
    has_no_speech: bool
    is_rejected: bool


def compression_ratio(tokens: Sequence[int], vocab_size: int) -> float:
    """The zlib compression ratio of the tokens' bytes; high for text that repeats itself."""
    size = int(math.log2(vocab_size) / 8) + 1
    content = b"".join(token.to_bytes(size, "little") for token in tokens)
    return len(content) / len(zlib.compress(content))


class TimedTokens(NamedTuple):
    """Tokens between two times, in seconds from the beginning of the window."""

    start: float
    end: float
    tokens: tuple[int, ...]


def split(
    tokens: Sequence[int], length: int, settings: WhisperSettings, extractor: FeatureExtractor
) -> tuple[list[TimedTokens], int]:
    """Cut a window's output, which has no end-of-sequence token, where timestamps come in pairs.

    Text after the last pair is unfinished, and is decoded again with the next window, unless the
    output ends with a single timestamp. Without a pair the whole output is one segment.
    Returns the segments, and the number of frames to the next window. length: frames of this one.
    """
    marks = [settings.is_timestamp(token) for token in tokens]
    times = [(token - settings.timestamp_begin) * TIME_PRECISION for token in tokens]
    cuts = [i + 1 for i in range(len(tokens) - 1) if marks[i] and marks[i + 1]]
    if not cuts:
        last = ([0.0] + [time for time, mark in zip(times, marks, strict=True) if mark])[-1]
        return [TimedTokens(0.0, last or extractor.seconds(length), tuple(tokens))], length
    if ends_in_one := marks[-2:] == [False, True]:
        cuts.append(len(tokens))
    else:
        length = round(times[cuts[-1] - 1] / extractor.seconds(1))
        cuts[-1] += 1  # both timestamps of the last pair belong to the last segment
    segments = []
    for start, end in zip([0, *cuts], cuts, strict=False):
        closing = end - 1 if end < cuts[-1] or ends_in_one else end - 2
        segments.append(TimedTokens(times[start], times[closing], tuple(tokens[start:end])))
    return segments, length
