"""Log-mel features: what Whisper's encoder is given of a recording.

They equal those of transformers' `WhisperFeatureExtractor` to 1e-4, without its import of torch.
Source: `log_mel_spectrogram` of openai/whisper; the mel scale of Slaney's Auditory Toolbox.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ov_specdec.speech.audio import Samples

Features: TypeAlias = NDArray[np.float32]
"""Log-mel features, [mel bins, frames]."""

MAX_FREQUENCY = 8000.0
"""Of the mel bins, in Hz, as in every Whisper."""

DYNAMIC_RANGE = 8.0
"""Powers of ten below the loudest frame, under which all counts as silence."""

BLOCK = 3000
"""Frames that are transformed at a time: bounds the memory for an hour of speech."""


@dataclass(frozen=True)
class FeatureExtractor:
    """How samples become features, under the names of preprocessor_config.json.

    feature_size: mel bins. sampling_rate: in Hz. hop_length, n_fft: samples between two frames,
    and in each. chunk_length: seconds that the encoder takes at a time.
    """

    feature_size: int = 80
    sampling_rate: int = 16000
    hop_length: int = 160
    n_fft: int = 400
    chunk_length: int = 30

    @property
    def num_samples(self) -> int:
        """Samples that the encoder takes at a time."""
        return self.chunk_length * self.sampling_rate

    @property
    def num_frames(self) -> int:
        """Frames that the encoder takes at a time."""
        return self.num_samples // self.hop_length

    def __call__(self, samples: Samples) -> Features:
        """The features of a recording, [feature_size, samples // hop_length].

        One that is shorter than a chunk is filled up with silence.
        """
        padded = np.pad(samples, (0, max(self.num_samples - len(samples), 0)))
        mel = np.concatenate([self._filters @ power for power in self._powers(padded)], axis=1)
        log = np.log10(np.maximum(mel, 1e-10))
        log = np.maximum(log, log.max() - DYNAMIC_RANGE)
        features: Features = ((log + 4.0) / 4.0).astype(np.float32)
        return features

    def _powers(self, samples: Samples) -> Iterator[NDArray[Any]]:
        """Power spectra, [n_fft // 2 + 1, frames], of some frames at a time."""
        reflected = np.pad(samples, self.n_fft // 2, mode="reflect")
        frames = np.lib.stride_tricks.sliding_window_view(reflected, self.n_fft)
        frames = frames[:: self.hop_length][: len(samples) // self.hop_length]
        hann = np.hanning(self.n_fft + 1)[:-1].astype(np.float32)
        for start in range(0, len(frames), BLOCK):
            spectrum = np.fft.rfft(frames[start : start + BLOCK] * hann).T
            yield np.abs(spectrum) ** 2

    @cached_property
    def _filters(self) -> NDArray[Any]:
        """Triangles of equal area on the mel scale, [feature_size, n_fft // 2 + 1]."""
        highest = _to_mel(np.array(MAX_FREQUENCY))
        edges = _to_hertz(np.linspace(0.0, highest, self.feature_size + 2))
        bins = np.linspace(0.0, self.sampling_rate // 2, self.n_fft // 2 + 1)
        low, middle, high = edges[:-2, None], edges[1:-1, None], edges[2:, None]
        rising, falling = (bins - low) / (middle - low), (high - bins) / (high - middle)
        triangles = np.maximum(0.0, np.minimum(rising, falling)) * 2.0 / (high - low)
        filters: NDArray[Any] = triangles.astype(np.float32)
        return filters


# Linear up to 1 kHz, 15 mels there; logarithmic above, 27 mels for a factor of 6.4.
_PER_MEL, _KNEE, _LOG_STEP = 200.0 / 3.0, 15.0, np.log(6.4) / 27.0


def _to_mel(hertz: NDArray[Any]) -> NDArray[Any]:
    above = _KNEE + np.log(np.maximum(hertz, 1000.0) / 1000.0) / _LOG_STEP
    return np.where(hertz < 1000.0, hertz / _PER_MEL, above)


def _to_hertz(mel: NDArray[Any]) -> NDArray[Any]:
    above = 1000.0 * np.exp(_LOG_STEP * (np.maximum(mel, _KNEE) - _KNEE))
    return np.where(mel < _KNEE, mel * _PER_MEL, above)
