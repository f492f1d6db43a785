"""Both texts as they come: the buttons that start and stop them, and their HTML. Needs gradio."""

from collections.abc import Callable, Iterator, Sequence
from html import escape
from itertools import groupby
from time import perf_counter
from typing import Any, Literal

import gradio as gr

from ov_specdec.demo.comparison import STOPPED, Comparison, Run
from ov_specdec.errors import SpecdecError
from ov_specdec.planning.plan import MAX_PLANNED_LENGTH
from ov_specdec.results.chunks import ENDINGS
from ov_specdec.results.origins import MEANINGS, as_html, legend_of

NARROW = 340
"""Minimum width of a pane or chart in pixels."""

LENGTH_CHOICES = ["auto", *range(1, MAX_PLANNED_LENGTH + 1)]

SHOW_EVERY = 0.06
"""Seconds between updates of a run: the page shares the cores with the models."""

NEW_LINE = "\N{DOWNWARDS ARROW WITH CORNER LEFTWARDS}"
NOTHING = "\N{EN DASH}"

ONE_AT_A_TIME: dict[str, Any] = {"concurrency_id": "models", "concurrency_limit": 1}
"""All runs share one place, so that gradio's queue runs one at a time."""

Values = dict[gr.components.Component, Any]
Turns = list[Comparison]


def side_by_side(
    run: Callable[[Values, Turns], Iterator[Comparison]],
    inputs: set[gr.components.Component],
    example: Comparison,
    decode: Callable[[list[int]], str],
    message: gr.Textbox | None = None,
) -> gr.State:
    """Both panes, with the buttons that start and stop a run. Returns the state: all turns.

    run: compares, given the turns before; yields the comparison after each piece of it. example:
    shown at the beginning. decode: gives the text of tokens. message: the box of a conversation's
    next message; without it, each run replaces the last one.
    """
    state = gr.State([])
    with gr.Row(equal_height=True):
        start = gr.Button("Run" if message is None else "Send", variant="primary", elem_id="run")
        stop = gr.Button("Stop", elem_id="stop")
        clear = gr.Button("Clear", elem_id="clear", visible=message is not None)
        with gr.Column(scale=6, min_width=260):
            ready = "This example ran at the start of the demo." if example.ratio else "Ready."
            status = html("run-status", status_html(ready))

    def known(turns: Turns, status: str = "") -> tuple[Any, ...]:
        last = turns[-1] if turns else Comparison(example.models)
        panes = pane_html(turns, "plain"), pane_html(turns, "speculative")
        below = details_html(last), rounds_html(last, decode)
        return turns, status_html(status or last.status), verdict_html(last), *panes, *below

    outputs = [state, status, *_results(*known([example])[2:])]
    boxes = [] if message is None else [message]

    def show(values: Values) -> Iterator[tuple[Any, ...]]:
        earlier: Turns = values[state] if boxes else []
        # The box is emptied once; then it may have the next message.
        shown, typed, turns = 0.0, [""] * len(boxes), earlier
        try:
            for turn in run(values, earlier):
                turns = [*earlier, turn]
                if perf_counter() - shown >= SHOW_EVERY:
                    yield *typed, *known(turns)
                    shown, typed = perf_counter(), [gr.skip()] * len(boxes)
        except SpecdecError as error:
            raise shown_error(error) from error
        yield *typed, *known(turns)

    def stopped(turns: Turns) -> tuple[Any, ...]:
        for turn in turns[-1:]:
            turn.stop()  # gradio may call this before it closes the run
        return known(turns, STOPPED)

    starts = [start.click, *(box.submit for box in boxes)]
    running = gr.on(
        starts, show, {state, *inputs}, [*boxes, *outputs], show_progress_on=status, **ONE_AT_A_TIME
    )
    # After an error, and after Stop: gradio's page fails at the empty message that ends a cancelled
    # run, and may mark that as an error after all else. This event comes later, without a mark.
    running.failure(stopped, state, outputs, queue=False)
    stop.click(None, cancels=running)
    clear.click(None, cancels=running)
    clear.click(lambda: known([]), None, outputs, queue=False)
    return state


def shown_error(error: SpecdecError) -> gr.Error:
    """An error as gradio shows it: as HTML, and the message may quote visitors' input."""
    return gr.Error(escape(str(error)), print_exception=False)


def _results(
    verdict: str, plain: str, speculative: str, details: str, rounds: str
) -> list[gr.HTML]:
    """Verdict, panes, details and rounds, with their first contents."""
    made = [html("verdict", verdict)]
    with gr.Row():
        for name, pane in (("plain", plain), ("speculative", speculative)):
            with gr.Column(min_width=NARROW):  # in a narrow window, columns of this width wrap
                made.append(html(name, pane))
    rejected = "<del>rejected draft token</del> (round by round)"
    html("legend", f'<p class="quiet">{legend_of(MEANINGS)}; {rejected}</p>')
    made.append(html("details", details))
    with gr.Accordion("Round by round, with rejected draft tokens struck through", open=False):
        return [*made, html("rounds", rounds)]


def html(name: str, content: str) -> gr.HTML:
    """An element of the page."""
    return gr.HTML(content, elem_id=name, elem_classes="specdec")


def pane_html(turns: Sequence[Comparison], method: Literal["plain", "speculative"]) -> str:
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


def rounds_html(comparison: Comparison, decode: Callable[[list[int]], str]) -> str:
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


def verdict_html(comparison: Comparison) -> str:
    """The speedup, and whether the texts are the same."""
    ratio = comparison.ratio
    if ratio is None:
        return ""
    return (
        f'<div class="verdict"><strong>{ratio:.2f}\N{MULTIPLICATION SIGN}</strong>'
        "<span>as fast as plain decoding, which ran first. "
        f'<em class="note">{escape(comparison.note)}</em></span></div>'
    )


def details_html(comparison: Comparison) -> str:
    """Draft lengths, once known, and the description of the models."""
    stats = comparison.speculative.output.stats
    planned = [str(own.planned) for own in stats.rounds[1:]] if stats else []
    lengths = ", ".join(length for length, _ in groupby(planned))
    drafts = f"Draft lengths, in order: {lengths}. " if lengths else ""
    speeds = "Speeds include the prefill. "
    return f'<p class="quiet">{speeds}{drafts}{escape(comparison.models)}</p>'


def status_html(text: str) -> str:
    """A status line."""
    return f'<p class="status" role="status">{escape(text)}</p>'


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
