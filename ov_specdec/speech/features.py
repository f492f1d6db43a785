"""Log-mel features, the input of Whisper's encoder.

They equal those of transformers' `WhisperFeatureExtractor` to 1e-4, without importing torch.
Source: `log_mel_spectrogram` of openai/whisper.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ov_specdec.speech.audio import Samples

MAX_FREQUENCY = 8000.0
"""Of the mel bins, in Hz, as in every Whisper."""

DYNAMIC_RANGE = 8.0
"""Dynamic range in powers of ten below the loudest frame."""

BLOCK_FRAMES = 3000
"""Frames in one transform, so that an hour of speech takes little memory."""

LOUDNESS_BLOCK = 0.1
"""Seconds over which loudness is measured: shorter than a word, longer than a click."""


@dataclass(frozen=True)
class FeatureExtractor:
    """Computes features from samples; fields as in preprocessor_config.json.

    feature_size: mel bins. sampling_rate: in Hz. hop_length, n_fft: samples between two frames,
    and in each. chunk_length: seconds in one encoder pass.
    """

    feature_size: int = 80
    sampling_rate: int = 16000
    hop_length: int = 160
    n_fft: int = 400
    chunk_length: int = 30

    @property
    def num_frames(self) -> int:
        """Frames in one encoder pass."""
        return self.chunk_length * self.sampling_rate // self.hop_length

    def seconds(self, num_frames: int) -> float:
        """The duration of some frames."""
        return num_frames * self.hop_length / self.sampling_rate

    def is_silent(self, samples: Samples, threshold: float) -> bool:
        """Whether no tenth of a second is as loud as `threshold`, in dB below full scale."""
        size = int(LOUDNESS_BLOCK * self.sampling_rate)
        starts = range(0, len(samples), size)
        power = max(float(np.square(samples[start : start + size]).mean()) for start in starts)
        return 10.0 * math.log10(max(power, 1e-20)) < threshold

    def features(self, samples: Samples) -> NDArray[np.float32]:
        """The features of a recording, [feature_size, frames].

        A short one is filled up with silence to one chunk.
        """
        if (missing := self.chunk_length * self.sampling_rate - len(samples)) > 0:
            samples = np.pad(samples, (0, missing))
        log = np.empty((self.feature_size, len(samples) // self.hop_length), np.float32)
        for start in range(0, log.shape[1], BLOCK_FRAMES):
            block = log[:, start : start + BLOCK_FRAMES]
            block[:] = self._log_mel(samples, start, start + block.shape[1])
        np.maximum(log, log.max() - DYNAMIC_RANGE, out=log)
        log += 4.0
        log /= 4.0
        return log

    def window(self, features: NDArray[np.float32], start: int) -> NDArray[np.float32]:
        """Features of one encoder pass from a frame; after the end of the recording they are 0."""
        window = features[:, start : start + self.num_frames]
        return np.pad(window, ((0, 0), (0, self.num_frames - window.shape[1])))

    def _log_mel(self, samples: Samples, start: int, stop: int) -> NDArray[Any]:
        """Log powers of some frames, [feature_size, stop - start]."""
        half = self.n_fft // 2
        first, end = start * self.hop_length - half, (stop - 1) * self.hop_length + half
        # One more, for the reflection at the beginning.
        part = samples[max(first, 0) : end + 1]
        missing = max(-first, 0), max(end - len(samples), 0)
        reflected = np.pad(part, missing, mode="reflect")
        frames = np.lib.stride_tricks.sliding_window_view(reflected, self.n_fft)
        hann = np.hanning(self.n_fft + 1)[:-1].astype(np.float32)
        spectrum = np.fft.rfft(frames[:: self.hop_length][: stop - start] * hann).T
        mel = self._filters @ np.abs(spectrum) ** 2
        log: NDArray[Any] = np.log10(np.maximum(mel, 1e-10))
        return log

    @cached_property
    def _filters(self) -> NDArray[Any]:
        """Triangles of equal area on the mel scale, [feature_size, n_fft // 2 + 1]."""
        from transformers.audio_utils import mel_filter_bank  # takes long to import

        filters: NDArray[Any] = mel_filter_bank(
            self.n_fft // 2 + 1,
            self.feature_size,
            *(0.0, MAX_FREQUENCY, self.sampling_rate),
            norm="slaney",
            mel_scale="slaney",
        ).T.astype(np.float32)
        return filters
