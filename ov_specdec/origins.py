"""Where the tokens of a text come from, in words and as marks in HTML."""

from collections.abc import Iterable, Mapping
from html import escape
from itertools import groupby
from typing import Literal

from ov_specdec.palette import BLUE, GREEN, ORANGE

Origin = Literal["draft", "correction", "bonus", "plain"]
"""Where tokens come from: accepted draft tokens; the main model's own token in place of a rejected
draft token; its own after all draft tokens were accepted; its own in a round without draft
tokens."""

MEANINGS: Mapping[Origin, str] = {
    "draft": "drafted, and accepted",
    "correction": "the main model's own, in place of a rejected draft token",
    "bonus": "the main model's own, after all draft tokens were accepted",
    "plain": "the main model's own, without draft tokens",
}

LINES: Mapping[Origin, tuple[str, str]] = {
    "draft": (BLUE, "solid"),
    "correction": (ORANGE, "dashed"),
    "bonus": (GREEN, "dotted"),
}
"""Colour and kind of the lines below tokens; none below plain ones. As on the demo's page."""

TINT = "26"
"""How opaque the background is: 0.15, so that a text has its usual colour, light or dark."""


def as_html(pieces: Iterable[tuple[Origin, str]]) -> str:
    """Pieces of a text as HTML, each marked by where it comes from; the text is escaped."""
    runs = groupby(pieces, key=lambda piece: piece[0])
    return "".join(_marked(origin, "".join(text for _, text in run)) for origin, run in runs)


def legend(origins: Iterable[Origin]) -> str:
    """What the marks of these origins mean, as HTML."""
    used = set(origins)
    marks = [_marked(origin, text) for origin, text in MEANINGS.items() if origin in used]
    return "; ".join(marks)


def _marked(origin: Origin, text: str) -> str:
    if origin not in LINES or not text:
        return escape(text)
    colour, line = LINES[origin]
    style = f"background: {colour}{TINT}; border-bottom: 2px {line} {colour}"
    return f'<span title="{MEANINGS[origin]}" style="{style}">{escape(text)}</span>'
