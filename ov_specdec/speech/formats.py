"""Transcriptions as files: plain text, JSON, and subtitles."""

import json
from html import escape
from typing import Literal

from ov_specdec.options.model import require
from ov_specdec.speech.segments import Segment, TranscriptionResult

Format = Literal["txt", "json", "srt", "vtt"]
WITH_WORDS: tuple[Format, ...] = ("json", "vtt")
"""Formats that support word times."""


def write(result: TranscriptionResult, form: Format) -> str:
    """A transcription in one of the formats, with a line break at its end.

    srt, vtt: SubRip and WebVTT, one subtitle for each segment; they need a result with segments.
    json has word times, and vtt has them as timestamps within a subtitle.
    """
    require("format", form, Format)
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
    entries = ["WEBVTT\n\n"] if form == "vtt" else []
    for number, segment in enumerate(result.segments, start=1):
        # Players would parse an arrow in the text as times.
        text = segment.text.strip().replace("-->", "->") if form == "srt" else _vtt_text(segment)
        head, point = (f"{number}\n", ",") if form == "srt" else ("", ".")
        times = f"{clock(segment.start, point)} --> {clock(segment.end, point)}"
        entries.append(f"{head}{times}\n{text}\n\n")
    return "".join(entries)


def _vtt_text(segment: Segment) -> str:
    """A segment's text, with the start times of its words if known.

    Times must increase and lie within the subtitle; others are dropped.
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
    """A time in subtitle format: hours, minutes, seconds, and milliseconds after `point`."""
    minutes, rest = divmod(round(seconds * 1000), 60_000)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{rest // 1000:02}{point}{rest % 1000:03}"
