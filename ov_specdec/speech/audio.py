"""Recordings: from a file or an array to mono samples at the rate that a model was trained on."""

from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ov_specdec.checks import require_int
from ov_specdec.errors import AudioError, OptionError

Samples: TypeAlias = NDArray[np.float32]
"""Mono samples from -1 to 1, [samples]."""

Audio: TypeAlias = str | Path | BinaryIO | tuple[NDArray[Any], int]
"""A file, or an open one; or samples with their rate in Hz, [samples] or [samples, channels]."""

MIN_RATE, MAX_RATE = 1_000, 768_000
MAX_CHANNELS = 64
"""An array with more of them is rather [channels, samples], which nobody could tell from audio."""


def read_audio(audio: Audio, sampling_rate: int) -> Samples:
    """A recording as mono samples at this rate; several channels are averaged.

    Raises `AudioError` for what is no recording, is empty, or holds values that are no numbers.
    """
    if isinstance(audio, tuple):
        samples, rate = _from_array(audio)
    elif isinstance(audio, str | Path) or hasattr(audio, "read"):
        samples, rate = _from_file(audio)
    else:
        raise AudioError(
            f"audio of type {type(audio).__name__} is neither a file nor samples with their rate: "
            "give a path, or (samples, sampling_rate)"
        )
    if not samples.size:
        raise AudioError("the recording is empty: give at least one sample")
    finite = np.isfinite(samples)
    if not finite.all():
        place = int(np.argmin(finite.all(axis=1)))
        raise AudioError(
            f"sample {place} of the recording is {samples[place].tolist()}, which is no finite "
            "number: repair what wrote it"
        )
    mono = samples.mean(axis=1, dtype=np.float32)
    if rate == sampling_rate:
        return np.ascontiguousarray(mono)
    resampled: Samples = _library("soxr").resample(mono, rate, sampling_rate)
    if not resampled.size:
        raise AudioError(f"the recording is empty at {sampling_rate} Hz: give more samples")
    return resampled


def _from_file(file: str | Path | BinaryIO) -> tuple[Samples, int]:
    """Samples [samples, channels] of a file, and their rate."""
    soundfile = _library("soundfile")
    name = f"'{file}'" if isinstance(file, str | Path) else "the file"
    if isinstance(file, str | Path) and not Path(file).expanduser().is_file():
        raise AudioError(f"{name} is not a file: give a recording")
    try:
        opened = Path(file).expanduser() if isinstance(file, str | Path) else file
        samples, rate = soundfile.read(opened, dtype="float32", always_2d=True)
    except (soundfile.SoundFileError, RuntimeError, TypeError) as error:
        raise AudioError(
            f"{name} is no recording that can be read ({_reason(error)}): give wav, flac, ogg or "
            "mp3; others can be converted with: ffmpeg -i FILE recording.wav"
        ) from error
    return samples, int(rate)


def _from_array(audio: tuple[Any, ...]) -> tuple[Samples, int]:
    """Samples [samples, channels] of an array with its rate."""
    if len(audio) != 2:
        raise AudioError(f"audio has {len(audio)} parts: it must be (samples, sampling_rate)")
    array, rate = np.asarray(audio[0]), audio[1]
    try:
        rate = int(rate) if isinstance(rate, np.integer) else rate
        require_int("sampling_rate", rate, low=MIN_RATE, high=MAX_RATE)
    except OptionError as error:
        raise AudioError(str(error)) from error
    if array.ndim not in (1, 2) or array.dtype.kind not in "fi":
        raise AudioError(
            f"samples of type {array.dtype} and shape {list(array.shape)} are no recording: give "
            "numbers, [samples] or [samples, channels]"
        )
    if array.ndim == 2 and array.shape[1] > MAX_CHANNELS:
        raise AudioError(
            f"samples of shape {list(array.shape)} have {array.shape[1]} channels: give them as "
            "[samples, channels]"
        )
    # Integers as recorders write them: the whole range of their type is -1 to 1.
    scale = 1.0 if array.dtype.kind == "f" else 1.0 / (np.iinfo(array.dtype).max + 1)
    samples: Samples = array.astype(np.float32) * np.float32(scale)
    return (samples[:, None] if samples.ndim == 1 else samples), rate


def require_libraries() -> None:
    """Raise `OptionError` where what reads recordings is not installed."""
    for name in ("soundfile", "soxr"):
        _library(name)


def _library(name: str) -> ModuleType:
    """A library of the extra `speech`; `OptionError` where it is not installed."""
    from importlib import import_module

    try:
        return import_module(name)
    except (ImportError, OSError) as error:  # soundfile looks for a shared library
        raise OptionError(
            f"recordings need {name} ({error}): pip install 'ov-specdec[speech]'"
        ) from error


def _reason(error: Exception) -> str:
    """What libsndfile says, without the object that it was asked to open."""
    return str(getattr(error, "error_string", error)).strip().rstrip(".")
