"""Transcriptions as files: plain text, JSON, and subtitles."""

import json
from collections.abc import Sequence
from html import escape
from typing import Literal, get_args

from ov_specdec.checks import require_choice
from ov_specdec.speech.segments import Segment, TranscriptionResult

Format = Literal["txt", "json", "srt", "vtt"]
WITH_WORDS: tuple[Format, ...] = ("json", "vtt")
"""Formats that have a place for the times of words."""


def write(result: TranscriptionResult, form: Format) -> str:
    """A transcription in one of the formats, with a line break at its end.

    srt, vtt: SubRip and WebVTT, one subtitle a segment; the result needs segments for that. Words
    with times are in json, and in vtt as timestamps within a subtitle.
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
        f"{clock(segment.start, '.')} --> {clock(segment.end, '.')}\n{_vtt_text(segment)}\n\n"
        for segment in segments
    )
    return "WEBVTT\n\n" + "".join(entries)


def _vtt_text(segment: Segment) -> str:
    """A segment's text, with the times at which its words begin where these are known.

    They have to increase, and to lie within the subtitle; that of other words is left out.
    """
    if not segment.words:
        return escape(segment.text.strip(), quote=False)
    latest, text = segment.start, ""
    for word in segment.words:
        if latest < word.start < segment.end:
            latest = word.start
            text += f"<{clock(latest, '.')}>"
        text += escape(word.text, quote=False)
    return text.strip()


def clock(seconds: float, point: str) -> str:
    """A time as subtitles have it: hours, minutes, seconds, and milliseconds after `point`."""
    total = round(seconds * 1000)
    minutes, rest = divmod(total, 60_000)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{rest // 1000:02}{point}{rest % 1000:03}"
