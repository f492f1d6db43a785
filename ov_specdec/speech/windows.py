"""Windows of long recordings: their starts, and which of them are silent.

A window is decoded up to the end of its last finished segment, and the next one starts there.
Source: section 4.5 of Radford et al. (arXiv 2212.04356), as in transformers.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ov_specdec.speech.audio import Samples
from ov_specdec.speech.features import FeatureExtractor, Features
from ov_specdec.speech.settings import TIME_PRECISION, WhisperSettings

LOUDNESS_BLOCK = 0.1
"""Seconds over which loudness is measured: shorter than a word, longer than a click."""


@dataclass(frozen=True)
class Window:
    """The part of a recording in one encoder pass. start, length: in frames."""

    start: int
    length: int

    def features(self, samples: Samples, extractor: FeatureExtractor, loudest: float) -> Features:
        """Its features [mel bins, num_frames], padded with 0 after the end of the recording."""
        num_frames = len(samples) // extractor.hop_length
        stop = min(self.start + extractor.num_frames, num_frames)
        part = extractor.features(samples, self.start, stop, loudest)
        return np.pad(part, ((0, 0), (0, extractor.num_frames - part.shape[1])))

    def samples(self, samples: Samples, extractor: FeatureExtractor) -> Samples:
        """Its samples."""
        hop = extractor.hop_length
        return samples[self.start * hop : (self.start + self.length) * hop]


@dataclass(frozen=True)
class TimedTokens:
    """Tokens between two times, in seconds from the beginning of the window."""

    start: float
    end: float
    tokens: tuple[int, ...]


@dataclass(frozen=True)
class Split:
    """The segments of a window, and the number of frames to the next window."""

    segments: tuple[TimedTokens, ...]
    num_frames: int


def window_at(start: int, num_frames: int, extractor: FeatureExtractor) -> Window:
    """The window that starts at this frame, of a recording of `num_frames` frames."""
    return Window(start, min(num_frames - start, extractor.num_frames))


def is_silent(samples: Samples, extractor: FeatureExtractor, threshold: float) -> bool:
    """Whether no tenth of a second is as loud as `threshold`, in dB below full scale."""
    size = int(LOUDNESS_BLOCK * extractor.sampling_rate)
    starts = range(0, len(samples), size)
    power = max(float(np.square(samples[start : start + size]).mean()) for start in starts)
    return 10.0 * math.log10(max(power, 1e-20)) < threshold


def whole(tokens: Sequence[int], window: Window, extractor: FeatureExtractor) -> Split:
    """All of a window's output as one segment."""
    seconds = window.length * extractor.hop_length / extractor.sampling_rate
    return Split((TimedTokens(0.0, seconds, tuple(tokens)),), window.length)


def split(
    tokens: Sequence[int], window: Window, settings: WhisperSettings, extractor: FeatureExtractor
) -> Split:
    """Cut a window's output, which has no end-of-sequence token, where timestamps come in pairs.

    Text after the last pair is unfinished, and is decoded again with the next window, unless the
    output ends with a single timestamp. Without a pair the whole output is one segment.
    """
    marks = [settings.is_timestamp(token) for token in tokens]
    cuts = [i + 1 for i in range(len(tokens) - 1) if marks[i] and marks[i + 1]]
    seconds = extractor.hop_length / extractor.sampling_rate
    if not cuts:
        times = [_time(token, settings) for token in tokens if settings.is_timestamp(token)]
        if not times or times[-1] == 0:
            return whole(tokens, window, extractor)
        return Split((TimedTokens(0.0, times[-1], tuple(tokens)),), window.length)
    ends_in_one = marks[-2:] == [False, True]
    if ends_in_one:
        cuts.append(len(tokens))
        num_frames = window.length
    else:
        last = _time(tokens[cuts[-1] - 1], settings)
        num_frames = round(last / seconds)
        # Both timestamps of the last pair belong to the last segment.
        cuts[-1] += 1
    segments = []
    for start, end in zip([0, *cuts], cuts, strict=False):
        part = tokens[start:end]
        closing = part[-1] if end < cuts[-1] or ends_in_one else part[-2]
        begins, ends = _time(part[0], settings), _time(closing, settings)
        segments.append(TimedTokens(begins, ends, tuple(part)))
    return Split(tuple(segments), num_frames)


def previous_text(
    segments: Sequence[Sequence[int]], prompt: Sequence[int], settings: WhisperSettings
) -> list[int]:
    """The context of a window: the last ids of prompt and previous segments; may be empty.

    segments: tokens of each, with timestamps.
    """
    context = list(prompt)
    for tokens in segments:
        doubled = len(tokens) > 2 and settings.is_timestamp(tokens[-2])
        context += tokens[:-1] if doubled else tokens
    return context[-settings.max_prompt_length :]


def _time(token: int, settings: WhisperSettings) -> float:
    """The time of a timestamp, in seconds."""
    return (token - settings.timestamp_begin) * TIME_PRECISION
