"""The state of runs as HTML, with model output escaped."""

from collections.abc import Callable, Sequence
from html import escape
from itertools import groupby
from typing import Literal

from ov_specdec.demo.comparison import Comparison, Run
from ov_specdec.results.chunks import ENDINGS
from ov_specdec.results.origins import MEANINGS, as_html, legend_of

NEW_LINE = "\N{DOWNWARDS ARROW WITH CORNER LEFTWARDS}"
NOTHING = "\N{EN DASH}"


def pane(turns: Sequence[Comparison], method: Literal["plain", "speculative"]) -> str:
    """The texts of a method, each below its message if it has one, and the last one's figures."""
    runs: list[Run] = [getattr(turn, method) for turn in turns]
    html = "".join(_answer(turn.message, run) for turn, run in zip(turns, runs, strict=True))
    last = runs[-1] if runs else Run()
    outcome = last.output.result.ending.label if last.is_complete else ENDINGS["cancelled"].label
    if last.outcome in ("not started", "running"):
        outcome = last.outcome.removeprefix("not started")
    return (
        f'<section class="pane" data-outcome="{last.outcome}"><header>'
        f"<h3>{method.capitalize()} decoding</h3>"
        f'<span class="outcome">{outcome}</span></header>'
        f"{_figures(last)}"
        # The inner element keeps the box scrolled to its end while text arrives.
        f'<div class="text" tabindex="0"><div>{html}</div></div>'
        "</section>"
    )


def rounds(comparison: Comparison, decode: Callable[[list[int]], str]) -> str:
    """The speculative run round by round, with rejected draft tokens. decode: gives their text.

    After figure 1 of Leviathan et al. (arXiv 2211.17192).
    """
    if not comparison.speculative.chunks:
        return '<p class="quiet">Rounds appear here.</p>'
    lines = []
    for chunks in comparison.speculative.rounds:
        line = ""
        for chunk in chunks:
            rejected = decode(chunk.rejected_ids) if chunk.rejected_ids else ""
            line += f"<del>{escape(_one_line(rejected))}</del>" if rejected else ""
            line += as_html([(chunk.origin, _one_line(chunk.text))])
        lines.append(f"<li>{line}</li>")
    return f'<ol class="rounds" tabindex="0">{"".join(lines)}</ol>'


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
    stats = comparison.speculative.output.stats
    planned = [str(own.planned) for own in stats.rounds[1:]] if stats else []
    lengths = ", ".join(length for length, _ in groupby(planned))
    drafts = f"Draft lengths, in order: {lengths}. " if lengths else ""
    speeds = "Speeds include the prefill. "
    return f'<p class="quiet">{speeds}{drafts}{escape(comparison.models)}</p>'


def status(text: str) -> str:
    """A status line."""
    return f'<p class="status" role="status">{escape(text)}</p>'


def legend() -> str:
    """The meaning of the marks."""
    rejected = "<del>rejected draft token</del> (round by round)"
    return f'<p class="quiet">{legend_of(MEANINGS)}; {rejected}</p>'


def _answer(message: str, run: Run) -> str:
    text = as_html((chunk.origin, chunk.text) for chunk in run.chunks)
    if not message:
        return text
    html = f'<p class="message">{escape(message)}</p><div class="answer">{text}</div>'
    return html + ('<p class="quiet">stopped</p>' if run.outcome == "cancelled" else "")


def _figures(run: Run) -> str:
    first, num_tokens = run.output.first_token, len(run.output.token_ids)
    figures = {
        "tokens/s": f"{run.tokens_per_second:.0f}" if run.seconds else NOTHING,
        "first token": NOTHING if first is None else f"{1000 * first:.0f} ms",
        "elapsed": f"{run.seconds:.2f} s" if run.seconds else NOTHING,
        "tokens": str(num_tokens),
    }
    accepted = sum(len(chunk.token_ids) for chunk in run.chunks if chunk.from_draft)
    if drafted := accepted + sum(len(chunk.rejected_ids) for chunk in run.chunks):
        figures["accepted"] = f"{accepted / drafted:.0%}"
        figures["tokens per pass"] = f"{num_tokens / len(run.rounds):.1f}"
    items = (f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in figures.items())
    return f'<dl class="figures">{"".join(items)}</dl>'


def _one_line(text: str) -> str:
    return text.replace("\n", NEW_LINE)
