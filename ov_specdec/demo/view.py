"""The state of a run as HTML, with model output escaped."""

from collections.abc import Sequence
from html import escape
from itertools import groupby
from operator import attrgetter

from ov_specdec.demo.comparison import Comparison
from ov_specdec.demo.conversation import Turn
from ov_specdec.demo.run import Piece, Run
from ov_specdec.origins import MEANINGS

PLAIN, SPECULATIVE = "Plain decoding", "Speculative decoding"
NEW_LINE = "\N{DOWNWARDS ARROW WITH CORNER LEFTWARDS}"
NOTHING = "\N{EN DASH}"

OUTCOMES = {
    "not started": "",
    "running": "running",
    "stop": "finished: end of text",
    "length": "finished: token limit",
    "cancelled": "stopped",
}


def panes(comparison: Comparison) -> tuple[str, str]:
    """The panes of plain and of speculative decoding."""
    return pane(comparison.plain, PLAIN), pane(comparison.speculative, SPECULATIVE)


def turn_panes(turns: Sequence[Turn]) -> tuple[str, str]:
    """As `panes`, for a conversation: alternating messages and answers."""
    plain = [(turn.message, turn.comparison.plain) for turn in turns]
    speculative = [(turn.message, turn.comparison.speculative) for turn in turns]
    return conversation_pane(plain, PLAIN), conversation_pane(speculative, SPECULATIVE)


def pane(run: Run, title: str) -> str:
    """Title, figures and text of a run."""
    return _pane(run, title, _text(run))


def conversation_pane(turns: Sequence[tuple[str, Run]], title: str) -> str:
    """As `pane`, for several runs, each below its message; with the figures of the last one."""
    html = "".join(
        f'<p class="message">{escape(message)}</p><div class="answer">{_text(run)}</div>'
        + ('<p class="quiet">stopped</p>' if run.outcome == "cancelled" else "")
        for message, run in turns
    )
    return _pane(turns[-1][1] if turns else Run(), title, html)


def rounds(run: Run) -> str:
    """A speculative run round by round, with rejected draft tokens.

    After figure 1 of Leviathan et al. (arXiv 2211.17192).
    """
    if not run.pieces:
        return '<p class="quiet">Rounds appear here.</p>'
    lines = ("".join(_piece_in_round(piece) for piece in pieces) for pieces in run.rounds)
    return f'<ol class="rounds" tabindex="0">{"".join(f"<li>{line}</li>" for line in lines)}</ol>'


def verdict(comparison: Comparison) -> str:
    """The speedup, and whether the texts are the same."""
    ratio = comparison.ratio
    if ratio is None:
        return ""
    return (
        f'<div class="verdict"><strong>{ratio:.2f}\N{MULTIPLICATION SIGN}</strong>'
        "<span>as fast as plain decoding, which ran first. "
        f'<em class="note">{escape(comparison.note)}</em></span></div>'
    )


def details(comparison: Comparison) -> str:
    """Draft lengths, once known, and the description of the models."""
    lengths = ", ".join(map(str, comparison.speculative.draft_lengths))
    drafts = f"Draft lengths, in order: {lengths}. " if lengths else ""
    speeds = "Speeds include the prefill. "
    return f'<p class="quiet">{speeds}{drafts}{escape(comparison.models)}</p>'


def status(text: str) -> str:
    """A status line."""
    return f'<p class="status" role="status">{escape(text)}</p>'


def problem(text: str) -> str:
    """An error message with its remedy."""
    return f'<p class="status problem" role="alert">{escape(text)}</p>'


def legend() -> str:
    """The meaning of the marks."""
    marks = [f"<li>{_mark(origin, 'token')} {text}</li>" for origin, text in MEANINGS.items()]
    rejected = "<li><del>token</del> drafted, and rejected (round by round)</li>"
    return f'<ul class="legend">{"".join(marks)}{rejected}</ul>'


def _pane(run: Run, title: str, html: str) -> str:
    return (
        f'<section class="pane" data-outcome="{run.outcome}"><header><h3>{escape(title)}</h3>'
        f'<span class="outcome">{OUTCOMES[run.outcome]}</span></header>'
        f"{_figures(run)}"
        # The inner element keeps the box scrolled to its end while text arrives.
        f'<div class="text" tabindex="0"><div>{html}</div></div>'
        "</section>"
    )


def _text(run: Run) -> str:
    """The text, marked by origin, in few elements, since a page may show many tokens."""
    return "".join(
        _mark(origin, escape("".join(piece.text for piece in pieces)))
        for origin, pieces in groupby(run.pieces, key=attrgetter("origin"))
    )


def _figures(run: Run) -> str:
    first = run.first_token_seconds
    figures = {
        "tokens/s": f"{run.tokens_per_second:.0f}" if run.seconds else NOTHING,
        "first token": NOTHING if first is None else f"{1000 * first:.0f} ms",
        "elapsed": f"{run.seconds:.2f} s" if run.seconds else NOTHING,
        "tokens": str(len(run.token_ids)),
    }
    if drafted := run.accepted + run.rejected:
        figures["accepted"] = f"{run.accepted / drafted:.0%}"
        figures["tokens per pass"] = f"{len(run.token_ids) / max(run.num_rounds, 1):.1f}"
    items = (f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in figures.items())
    return f'<dl class="figures">{"".join(items)}</dl>'


def _piece_in_round(piece: Piece) -> str:
    """One piece in a line, with rejected draft tokens."""
    rejected = f"<del>{_one_line(piece.rejected)}</del>" if piece.rejected else ""
    return rejected + _mark(piece.origin, _one_line(piece.text))


def _mark(origin: str, html: str) -> str:
    return f'<span class="{origin}">{html}</span>' if html else ""


def _one_line(text: str) -> str:
    return escape(text).replace("\n", f'<span class="new-line">{NEW_LINE}</span>')
