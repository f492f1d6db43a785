"""Recordings: from a file or an array to mono samples at the rate that a model was trained on."""

import math
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ov_specdec.checks import require_int
from ov_specdec.errors import AudioError, OptionError, install, shorten

Samples: TypeAlias = NDArray[np.float32]
"""Mono samples from -1 to 1, [samples]."""

Audio: TypeAlias = str | Path | BinaryIO | tuple[NDArray[Any], int]
"""A file, or an open one; or samples with their rate in Hz, [samples] or [samples, channels]."""

MIN_RATE, MAX_RATE = 1_000, 768_000
MAX_CHANNELS = 64
"""An array with more of them is rather [channels, samples], which nobody could tell from audio."""

MAX_SAMPLES = 2**30
"""Of a file, at its own rate and at the model's: 18 hours at 16 kHz. A few MB of a compressed
format may hold many times as much as memory has room for."""

UNKNOWN = 2**63 - 1
"""Samples of a flac that says nothing of its length, as encoders write it into a pipe."""

BLOCK = 2**16
"""Samples of each channel that are decoded at a time."""

INTEGERS = ("int8", "int16", "int32")
"""Types whose whole range is that of recordings; of wider ones nobody could tell."""


def read_audio(
    audio: Audio,
    sampling_rate: int,
    max_seconds: float = math.inf,
    on_block: Callable[[], None] = lambda: None,
) -> Samples:
    """A recording as mono samples at this rate; several channels are averaged.

    max_seconds: of a file. on_block: called before each block of a file is decoded; it may raise.
    Raises `AudioError` for what is no recording, is empty or too long, or holds values that are no
    numbers.
    """
    if isinstance(audio, tuple):
        mono, rate = _from_array(audio)
        samples = _joined(_at_rate([mono], rate, sampling_rate))
    elif isinstance(audio, str | Path) or hasattr(audio, "read"):
        samples = _from_file(audio, sampling_rate, max_seconds, on_block)
    else:
        raise AudioError(
            f"audio of type {type(audio).__name__} is neither a file nor samples with their rate: "
            "give a path, or (samples, sampling_rate)"
        )
    if not samples.size:
        raise AudioError(f"the recording is empty at {sampling_rate} Hz: give more samples")
    return samples


def _from_file(
    file: str | Path | BinaryIO,
    sampling_rate: int,
    max_seconds: float,
    on_block: Callable[[], None],
) -> Samples:
    """Mono samples of a file, at a rate."""
    soundfile = _library("soundfile")
    name = f"'{file}'" if isinstance(file, str | Path) else "the file"
    opened = _find(file) if isinstance(file, str | Path) else file
    try:
        with soundfile.SoundFile(opened) as recording:
            rate = recording.samplerate
            if not MIN_RATE <= rate <= MAX_RATE or recording.channels > MAX_CHANNELS:
                raise AudioError(
                    f"{name} has {recording.channels} channels at {rate} Hz: give up to "
                    f"{MAX_CHANNELS}, at {MIN_RATE} to {MAX_RATE} Hz"
                )
            most = MAX_SAMPLES * rate // max(rate, sampling_rate)
            most = int(min(most, max_seconds * rate))
            blocks = _read(recording, name, most, on_block)
            return _joined(_at_rate(blocks, rate, sampling_rate))
    except (soundfile.SoundFileError, RuntimeError, TypeError) as error:
        raise AudioError(
            f"{name} is no recording that can be read ({_reason(error)}): give wav, flac, ogg or "
            "mp3; others can be converted with: ffmpeg -i FILE recording.wav"
        ) from error


def _find(path: str | Path) -> Path:
    """A file by its path, in which "~" is a home."""
    try:
        found = Path(path).expanduser()
        if found.is_file():
            return found
    except (RuntimeError, OSError) as error:  # no such user; too long
        reason = error.strerror if isinstance(error, OSError) else error
        raise AudioError(
            f"{shorten(str(path))} cannot be looked up ({reason}): give a recording"
        ) from error
    raise AudioError(f"'{path}' is not a file: give a recording")


def _read(recording: Any, name: str, most: int, on_block: Callable[[], None]) -> Iterator[Samples]:
    """Mono samples of an open file. most: more are refused, whatever its head says of them."""
    too_long = AudioError(
        f"{name} has more than {most} samples, or {most // recording.samplerate} seconds: cut it "
        "into parts"
    )
    if most < recording.frames < UNKNOWN:
        raise too_long
    if recording.seekable():
        recording.seek(0)
    # Else it seeks after every block, which a flac of unknown length cannot, and mp3 not exactly.
    recording.seekable = lambda: False
    length = 0
    on_block()
    while len(block := recording.read(BLOCK, dtype="float32", always_2d=True)):
        yield _to_mono(block, length)
        length += len(block)
        if length > most:
            raise too_long
        on_block()


def _at_rate(blocks: Iterable[Samples], rate: int, wanted: int) -> Iterator[Samples]:
    """Blocks of a recording at another rate: what is not needed any more takes no memory."""
    if rate == wanted:
        yield from blocks
        return
    stream = _library("soxr").ResampleStream(rate, wanted, 1, dtype="float32")
    for block in blocks:
        yield stream.resample_chunk(block)
    yield stream.resample_chunk(np.zeros(0, np.float32), last=True)


def _joined(blocks: Iterable[Samples]) -> Samples:
    return np.concatenate([np.zeros(0, np.float32), *blocks])


def _to_mono(samples: Samples, start: int = 0) -> Samples:
    """The mean of the channels of samples [samples, channels]. start: place of the first."""
    finite = np.isfinite(samples)
    if not finite.all():
        place = int(np.argmin(finite.all(axis=1)))
        raise AudioError(
            f"sample {start + place} of the recording is {samples[place].tolist()}, which is no "
            "finite number: repair what wrote it"
        )
    if samples.shape[1] == 1:
        return samples[:, 0]
    mono: Samples = samples.mean(axis=1, dtype=np.float32)
    return mono


def _from_array(audio: tuple[Any, ...]) -> tuple[Samples, int]:
    """Mono samples of an array, and their rate."""
    if len(audio) != 2:
        raise AudioError(f"audio has {len(audio)} parts: it must be (samples, sampling_rate)")
    rate = int(audio[1]) if isinstance(audio[1], np.integer) else audio[1]
    try:
        array = np.asarray(audio[0])
        require_int("sampling_rate", rate, low=MIN_RATE, high=MAX_RATE)
    except ValueError as error:  # lists of several lengths, or the rate
        raise AudioError(str(error)) from error
    is_known = array.dtype.kind == "f" or array.dtype.name in INTEGERS
    if array.ndim not in (1, 2) or not is_known:
        raise AudioError(
            f"samples of type {array.dtype} and shape {list(array.shape)} are no recording: give "
            f"floats from -1 to 1, or {', '.join(INTEGERS)}, as [samples] or [samples, channels]"
        )
    if array.ndim == 2 and not 1 <= array.shape[1] <= MAX_CHANNELS:
        raise AudioError(
            f"samples of shape {list(array.shape)} have {array.shape[1]} channels: give them as "
            "[samples, channels]"
        )
    # Integers as recorders write them: the whole range of their type is -1 to 1.
    samples: Samples = array.astype(np.float32, copy=False)
    if array.dtype.kind != "f":
        samples = samples * np.float32(1.0 / (np.iinfo(array.dtype).max + 1))
    return _to_mono(samples[:, None] if samples.ndim == 1 else samples), rate


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
        raise OptionError(f"recordings need {name} ({error}): {install('speech')}") from error


def _reason(error: Exception) -> str:
    """What libsndfile says, without the object that it was asked to open."""
    return str(getattr(error, "error_string", error)).strip().rstrip(".")
