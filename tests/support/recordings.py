"""Recordings as files of all forms, made with PyAV."""

from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import BinaryIO

import av
import numpy as np

from ov_specdec.speech.segments import Segment, SpeechStats, TranscriptionResult

CODECS = {
    "wav": "pcm_f32le",
    "flac": "flac",
    "ogg": "libopus",
    "mp3": "libmp3lame",
    "webm": "libopus",
    "mp4": "aac",
    "adts": "aac",
}
"""What each form of file is written with. adts: a bare stream of AAC."""


def write_recording(
    file: Path | BinaryIO,
    samples: np.ndarray,
    rate: int,
    form: str = "wav",
    codec: str = "",
    options: Mapping[str, str] | None = None,
) -> None:
    """Samples [samples] or [samples, channels] as a file; m4a is what mp4 writes.

    options: of FFmpeg's muxer.
    """
    channels = samples[:, None] if samples.ndim == 1 else samples
    layout = {1: "mono", 2: "stereo"}.get(channels.shape[1], f"{channels.shape[1]}c")
    with av.open(str(file) if isinstance(file, Path) else file, "w", form, options) as container:
        stream = container.add_stream(codec or CODECS[form], rate=rate, layout=layout)
        context = stream.codec_context
        context.open()
        frame = av.AudioFrame.from_ndarray(
            np.ascontiguousarray(channels.T, np.float32), format="fltp", layout=layout
        )
        frame.sample_rate, frame.pts, frame.time_base = rate, 0, Fraction(1, rate)
        resampler = av.AudioResampler(
            context.format, layout, rate, frame_size=context.frame_size or 0
        )
        for part in [*resampler.resample(frame), *resampler.resample(None)]:
            container.mux(stream.encode(part))
        container.mux(stream.encode(None))


def result():
    segments = (
        Segment(0.0, 2.5, " First --> line.", (1, 2)),
        Segment(3661.5, 3662.0416, " Second.", (3,)),
    )
    return TranscriptionResult("First line. Second.", segments, "en", SpeechStats(3662.0))
