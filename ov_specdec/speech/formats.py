"""Transcriptions as files: plain text, JSON, and subtitles."""

import json
from collections.abc import Sequence
from html import escape
from typing import Literal, get_args

from ov_specdec.checks import require_choice
from ov_specdec.speech.segments import Segment, TranscriptionResult

Format = Literal["txt", "json", "srt", "vtt"]


def write(result: TranscriptionResult, form: Format) -> str:
    """A transcription in one of the formats, with a line break at its end.

    srt, vtt: SubRip and WebVTT, one subtitle a segment; the result needs segments for that.
    """
    require_choice("format", form, get_args(Format))
    if form == "txt":
        return f"{result.text}\n"
    if form == "json":
        content = {
            "text": result.text,
            "language": result.language,
            "segments": [segment.as_dict() for segment in result.segments],
            "stats": result.stats.as_dict(),
        }
        return f"{json.dumps(content, ensure_ascii=False, indent=2)}\n"
    return _srt(result.segments) if form == "srt" else _vtt(result.segments)


def _srt(segments: Sequence[Segment]) -> str:
    entries = (
        f"{number}\n{clock(segment.start, ',')} --> {clock(segment.end, ',')}\n"
        # An arrow in its text would be read as times.
        f"{segment.text.strip().replace('-->', '->')}\n\n"
        for number, segment in enumerate(segments, start=1)
    )
    return "".join(entries)


def _vtt(segments: Sequence[Segment]) -> str:
    entries = (
        f"{clock(segment.start, '.')} --> {clock(segment.end, '.')}\n"
        f"{escape(segment.text.strip(), quote=False)}\n\n"
        for segment in segments
    )
    return "WEBVTT\n\n" + "".join(entries)


def clock(seconds: float, point: str) -> str:
    """A time as subtitles have it: hours, minutes, seconds, and milliseconds after `point`."""
    total = round(seconds * 1000)
    minutes, rest = divmod(total, 60_000)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{rest // 1000:02}{point}{rest % 1000:03}"
