"""Recordings: from a file or an array to mono samples at the rate that a model was trained on."""

import ctypes
import math
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from fractions import Fraction
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ov_specdec.errors import AudioError, requiring
from ov_specdec.files import expand_home
from ov_specdec.options.model import require

Samples: TypeAlias = NDArray[np.float32]
"""Mono samples from -1 to 1, [samples]."""

Audio: TypeAlias = str | Path | BinaryIO | tuple[NDArray[Any], int]
"""A file, or an open one; or samples with their rate in Hz, [samples] or [samples, channels]."""

MIN_RATE, MAX_RATE = 1_000, 768_000
MAX_CHANNELS = 64
"""More channels suggest an array with swapped axes, [channels, samples]."""

MAX_SAMPLES = 2**30
"""Maximum of a file, at the model's rate: 18 hours at 16 kHz. A few MB of a compressed format may
decode to more than fits in memory."""

FORMATS = "wav,w64,aiff,au,caf,flac,ogg,mp3,aac,amr,mov,matroska"
"""Accepted containers, by FFmpeg's names (mov: mp4, m4a, 3gp; matroska: webm). Others, such as
playlists, could make FFmpeg open further files and addresses."""

MAX_STREAMS = 32
"""Maximum streams of a file: FFmpeg makes an index for each."""

MIN_INDEX, INDEX_PER_SECOND = 2**25, 10_000
"""Bytes that an array of FFmpeg, such as an index, may have at least, and for each second of a
recording, of which an index takes 2,500."""

SAMPLES = 2**16
"""Samples of an array in one conversion."""

INTEGERS = ("int8", "int16", "int32")
"""Integer types of recordings, which use their whole range; that of wider types is ambiguous."""


def read_audio(
    audio: Audio,
    sampling_rate: int,
    max_seconds: float = math.inf,
    on_block: Callable[[], None] = lambda: None,
) -> Samples:
    """A recording as mono samples at this rate; several channels are averaged.

    max_seconds: of a file. on_block: called before each frame of a file is decoded; it may raise.
    Raises `AudioError` if the input is no recording, is empty or too long, or has values that are
    not finite.
    """
    is_path = isinstance(audio, str | Path)
    if isinstance(audio, tuple):
        name = "the recording"
        mono, rate = _from_array(audio)
        parts = (mono[start : start + SAMPLES] for start in range(0, len(mono), SAMPLES))
        blocks = _at_rate(parts, rate, sampling_rate)
    elif is_path or hasattr(audio, "read"):
        name = f"'{audio}'" if is_path else "the file"
        limit = min(max_seconds, MAX_SAMPLES / sampling_rate)
        blocks = _from_file(audio, name, limit, sampling_rate, on_block)
    else:
        raise AudioError(
            f"audio of type {type(audio).__name__} is neither a file nor samples with their rate: "
            "give a path, or (samples, sampling_rate)"
        )
    samples = np.concatenate([np.zeros(0, np.float32), *blocks])
    if not samples.size:
        raise AudioError(f"{name} is empty at {sampling_rate} Hz: give more samples")
    return samples


def _from_file(
    audio: Any, name: str, limit: float, target_rate: int, on_block: Callable[[], None]
) -> Iterator[Samples]:
    """Mono samples of a file at the target rate. The format may change between frames."""
    form = attrgetter("layout.nb_channels", "sample_rate", "layout.name", "format.name")
    with _opened(audio, name) as recording:
        frames = _frames(recording, name, limit, on_block)
        for (channels, rate, *_), run in groupby(frames, form):
            if not MIN_RATE <= rate <= MAX_RATE or channels > MAX_CHANNELS:
                raise AudioError(
                    f"{name} has {channels} channels at {rate} Hz: give up to {MAX_CHANNELS}, at "
                    f"{MIN_RATE} to {MAX_RATE} Hz"
                )
            to_floats = require_libraries().AudioResampler(format="fltp")
            parts = (part for frame in run for part in to_floats.resample(frame))
            blocks = (_to_mono(part.to_ndarray().T) for part in parts)
            yield from _at_rate(blocks, rate, target_rate)


@contextmanager
def _opened(audio: Any, name: str) -> Iterator[Any]:
    """A path or open file as a container of PyAV; `AudioError` for what it cannot read."""
    av = require_libraries()
    options = {"format_whitelist": FORMATS, "max_streams": str(MAX_STREAMS)}
    with ExitStack() as opened:
        try:
            if isinstance(audio, str | Path):
                if not (path := expand_home(audio)).is_file():
                    raise AudioError(f"{name} is not a file: give a recording")
                audio = opened.enter_context(path.open("rb"))
            if getattr(audio, "seekable", bool)():
                start, end = audio.tell(), audio.seek(0, os.SEEK_END)
                audio.seek(start)
                if end <= start:  # PyAV prints the traceback of a seek before its error
                    raise AudioError(f"{name} is empty: give a recording")
            yield opened.enter_context(
                av.open(audio, "r", options=options, metadata_errors="ignore")
            )
        except (av.FFmpegError, OSError, TypeError) as error:  # TypeError: a file of text
            reason = getattr(error, "strerror", None) or error
            raise AudioError(
                f"{name} is no recording that can be read ({reason}): give wav, flac, ogg, mp3, "
                "m4a, mp4 or webm; others can be converted with: ffmpeg -i FILE recording.wav"
            ) from error


def _frames(recording: Any, name: str, limit: float, on_block: Callable[[], None]) -> Iterator[Any]:
    """The decoded frames of an open file of at most `limit` seconds; damaged ones are dropped."""
    av = require_libraries()
    if not recording.streams.audio:
        raise AudioError(f"{name} has no sound: give a recording")
    seconds, damage = Fraction(0), None
    for packet in recording.demux(recording.streams.audio[0]):
        on_block()
        try:
            frames = packet.decode()
        except av.FFmpegError as error:
            damage = error
            continue
        for frame in frames:
            seconds += Fraction(frame.samples, frame.sample_rate)
            if seconds > limit:
                raise AudioError(f"{name} is longer than {limit:g} seconds: cut it into parts")
            yield frame
    if damage is not None and not seconds:
        raise damage


def _at_rate(blocks: Iterable[Samples], rate: int, target_rate: int) -> Iterator[Samples]:
    """Resample a recording block by block, to save memory."""
    if rate == target_rate:
        yield from blocks
        return
    av = require_libraries()
    resampler = av.AudioResampler(format="fltp", layout="mono", rate=target_rate)
    for block in blocks:
        frame = av.AudioFrame.from_ndarray(block[None], format="fltp", layout="mono")
        frame.sample_rate = rate
        yield from (part.to_ndarray()[0] for part in resampler.resample(frame))
    yield from (part.to_ndarray()[0] for part in resampler.resample(None))


def _to_mono(samples: Samples) -> Samples:
    """The mean of the channels of samples [samples, channels]."""
    finite = np.isfinite(samples)
    if not finite.all():
        wrong = samples[int(np.argmin(finite.all(axis=1)))].tolist()
        raise AudioError(
            f"a sample of the recording is {wrong}, which is no finite number: repair what wrote it"
        )
    mono: Samples = samples.mean(axis=1, dtype=np.float32)
    return mono


def _from_array(audio: tuple[Any, ...]) -> tuple[Samples, int]:
    if len(audio) != 2:
        raise AudioError(f"audio has {len(audio)} parts: it must be (samples, sampling_rate)")
    rate = int(audio[1]) if isinstance(audio[1], np.integer) else audio[1]
    try:
        array = np.asarray(audio[0])
        require("sampling_rate", rate, int, ge=MIN_RATE, le=MAX_RATE)
    except ValueError as error:  # lists of several lengths, or the rate
        raise AudioError(str(error)) from error
    is_known = array.dtype.kind == "f" or array.dtype.name in INTEGERS
    channels = array[:, None] if array.ndim == 1 else array
    if not is_known or channels.ndim != 2 or not 1 <= channels.shape[1] <= MAX_CHANNELS:
        raise AudioError(
            f"samples of type {array.dtype} and shape {list(array.shape)} are no recording: give "
            f"floats from -1 to 1, or {', '.join(INTEGERS)}, as [samples] or [samples, channels], "
            f"with up to {MAX_CHANNELS} channels"
        )
    # The range of an integer type maps to -1 to 1.
    samples: Samples = channels.astype(np.float32, copy=False)
    if array.dtype.kind != "f":
        samples = samples * np.float32(1.0 / (np.iinfo(array.dtype).max + 1))
    return _to_mono(samples), rate


def limit_ffmpeg(max_seconds: float) -> None:
    """Limit the arrays of FFmpeg in this process, for files of strangers.

    One of 1 KB may announce so many samples that their index takes gigabytes. max_seconds: of
    recordings that have to be read.
    """
    from av import buffer

    limit = ctypes.CDLL(buffer.__file__).av_max_alloc
    limit(ctypes.c_size_t(max(MIN_INDEX, math.ceil(max_seconds * INDEX_PER_SECOND))))


def require_libraries() -> ModuleType:
    """PyAV, from the extra `speech`: FFmpeg's decoders. `OptionError` if it is not installed."""
    with requiring("recordings need PyAV", "speech"):
        import av
    return av
