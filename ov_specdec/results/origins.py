"""`Origin`: who wrote a token, what that means in words, and how texts are marked by it."""

from collections.abc import Iterable, Mapping
from html import escape
from itertools import groupby
from typing import Literal

BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#777777"
"""Okabe and Ito's colours, which colour-blind readers can distinguish."""

Origin = Literal["draft", "correction", "bonus", "plain"]
"""See `MEANINGS`."""

MEANINGS: Mapping[Origin, str] = {
    "draft": "accepted draft token",
    "correction": "main model's replacement of a rejected draft token",
    "bonus": "main model's token after a fully accepted draft",
    "plain": "main model's token in a round without a draft",
}

LINES: Mapping[Origin, tuple[str, str]] = {
    "draft": (BLUE, "solid"),
    "correction": (ORANGE, "dashed"),
    "bonus": (GREEN, "dotted"),
}
"""Colour, and style of underlines, wherever texts are marked; plain tokens have none."""

TINT = "26"
"""Opacity of the background: 0.15, so that the text keeps its colour in light and dark mode."""


def as_html(pieces: Iterable[tuple[Origin, str]]) -> str:
    """Pieces of a text as HTML, each marked by its origin; the text is escaped."""
    runs = groupby(pieces, key=lambda piece: piece[0])
    return "".join(_marked(origin, "".join(text for _, text in run)) for origin, run in runs)


def legend_of(origins: Iterable[Origin]) -> str:
    """The meaning of the marks of these origins, as HTML."""
    used = set(origins)
    marks = [_marked(origin, text) for origin, text in MEANINGS.items() if origin in used]
    return "; ".join(marks)


def _marked(origin: Origin, text: str) -> str:
    if origin not in LINES or not text:
        return escape(text)
    colour, line = LINES[origin]
    style = f"background: {colour}{TINT}; border-bottom: 2px {line} {colour}"
    return f'<span title="{MEANINGS[origin]}" style="{style}">{escape(text)}</span>'
