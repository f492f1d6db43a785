"""Both texts as they come, with the buttons that start and stop them. Needs gradio."""

from collections.abc import Callable, Iterator
from html import escape
from time import perf_counter
from typing import Any

import gradio as gr

from ov_specdec.demo import view
from ov_specdec.demo.comparison import STOPPED, Comparison
from ov_specdec.errors import SpecdecError
from ov_specdec.planning.plan import MAX_PLANNED_LENGTH

NARROW = 340
"""Minimum width of a pane or chart in pixels."""

LENGTH_CHOICES = ["auto", *range(1, MAX_PLANNED_LENGTH + 1)]

SHOW_EVERY = 0.06
"""Seconds between updates of a run: the page shares the cores with the models."""

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
            status = html("run-status", view.status(ready))

    def known(turns: Turns, status: str = "") -> tuple[Any, ...]:
        last = turns[-1] if turns else Comparison(example.models)
        panes = view.pane(turns, "plain"), view.pane(turns, "speculative")
        below = view.details(last), view.rounds(last, decode)
        return turns, view.status(status or last.status), view.verdict(last), *panes, *below

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

    starts = [start.click, *(box.submit for box in boxes)]
    running = gr.on(
        starts, show, {state, *inputs}, [*boxes, *outputs], show_progress_on=status, **ONE_AT_A_TIME
    )
    # After an error, and after Stop: gradio's page fails at the empty message that ends a cancelled
    # run, and may mark that as an error after all else. This event comes later, without a mark.
    running.failure(lambda turns: known(turns, STOPPED), state, outputs, queue=False)
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
    html("legend", view.legend())
    made.append(html("details", details))
    with gr.Accordion("Round by round, with rejected draft tokens struck through", open=False):
        return [*made, html("rounds", rounds)]


def html(name: str, content: str) -> gr.HTML:
    """An element of the page."""
    return gr.HTML(content, elem_id=name, elem_classes="specdec")
