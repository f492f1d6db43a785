"""Parts of the demo's pages: both texts as they come, buttons, charts. Needs gradio."""

import json
from collections.abc import Callable, Iterator, Mapping
from html import escape
from time import perf_counter
from typing import Any

import gradio as gr

from ov_specdec.demo import view
from ov_specdec.demo.comparison import Comparison
from ov_specdec.errors import SpecdecError
from ov_specdec.planning.draft_length import MAX_PLANNED_LENGTH
from ov_specdec.results.chunks import BLUE, GREEN, GREY, ORANGE

READY, STOPPED = "Ready.", "Stopped."
EXAMPLE = "This example ran at the start of the demo."
WAITING = "Waiting for the models \N{HORIZONTAL ELLIPSIS}"
SHOW_WAITING = f"() => {json.dumps(view.status(WAITING))}"
"""Shows the line in the browser itself, so that it never comes after the run."""

COLORS = {
    "draft token": {"accepted": BLUE, "rejected": ORANGE},
    "part": {"drafting": BLUE, "verifying": GREEN, "rest": GREY},
    "method": {"plain": GREY, "speculative": BLUE},
}

NARROW = 340
"""Minimum width of a pane or chart in pixels."""

LENGTH_CHOICES = ["auto", *range(1, MAX_PLANNED_LENGTH + 1)]

SHOW_EVERY = 0.06
"""Seconds between updates of a run: the page shares the cores with the models."""

AT_ONCE: dict[str, Any] = {"queue": False, "show_progress": "hidden"}
# All runs share one place, so that gradio's queue runs one at a time. Its progress would fade the
# status line.
ONE_AT_A_TIME: dict[str, Any] = {
    "concurrency_id": "models",
    "concurrency_limit": 1,
    "show_progress": "hidden",
}

Values = dict[gr.components.Component, Any]
Turns = list[Comparison]


def side_by_side(
    run: Callable[[Values, Turns], Iterator[None]],
    inputs: set[gr.components.Component],
    example: Comparison,
    message: gr.Textbox | None = None,
) -> gr.State:
    """Both panes, with the buttons that start and stop a run. Returns the state: all turns.

    run: adds a comparison to the turns, and pauses after each piece of it. example: shown at the
    beginning. message: the box of a conversation's next message; without it, each run replaces the
    last one.
    """
    labels = {"run": "Run", "stop": "Stop"}
    if message is not None:
        labels = {"run": "Send", "stop": "Stop", "clear": "Clear"}
    made, status = buttons(labels, EXAMPLE if example.ratio else READY)
    state = gr.State([])
    boxes = [] if message is None else [message]
    outputs = [state, *boxes, status, *_results(_contents([example]))]
    same: list[Any] = [gr.skip()] * len(boxes)  # the visitor may have typed the next message

    def show(values: Values) -> Iterator[tuple[Any, ...]]:
        turns: Turns = values[state] if message is not None else []
        before, shown, box = len(turns), 0.0, [""] * len(boxes)
        try:
            for _ in run(values, turns):
                if turns and perf_counter() - shown >= SHOW_EVERY:
                    yield turns, *box, view.status(turns[-1].status), *_contents(turns)
                    shown, box = perf_counter(), same
            text = view.status(turns[-1].status if turns else READY)
        except SpecdecError as error:
            text = problem(error)
            del turns[before:]
            box = [values[each] for each in boxes]
        yield turns, *box, text, *_contents(turns)

    def stop(turns: Turns) -> tuple[Any, ...]:
        box = same
        if turns:
            turns[-1].stop()
            if boxes and not turns[-1].plain.output.token_ids:  # it was not answered
                box = [turns.pop().message]
        return turns, *box, view.status(STOPPED), *_contents(turns)

    def clear(turns: Turns) -> tuple[Any, ...]:
        stop(turns)
        turns.clear()
        return turns, *same, view.status(READY), *_contents(turns)

    starts = [made[0].click, *(box.submit for box in boxes)]
    gr.on(starts, None, None, status, js=SHOW_WAITING, **AT_ONCE)
    running = gr.on(starts, show, {state, *inputs}, outputs, **ONE_AT_A_TIME)
    made[1].click(stop, state, outputs, cancels=running, **AT_ONCE)
    for button in made[2:]:
        button.click(clear, state, outputs, cancels=running, **AT_ONCE)
    return state


def buttons(labels: Mapping[str, str], ready: str = READY) -> tuple[list[gr.Button], gr.HTML]:
    """Buttons, the main one first, and a status line. labels: by the name of the element.

    ready: the initial status.
    """
    main, *_ = labels
    with gr.Row(equal_height=True):
        made = [
            gr.Button(
                label,
                variant="primary" if name == main else "secondary",
                elem_id=name,
                scale=1,
                min_width=90,
            )
            for name, label in labels.items()
        ]
        with gr.Column(scale=6, min_width=260):
            status = _html(view.status(ready), f"{main}-status")
    return made, status


def problem(error: SpecdecError) -> str:
    """An error as a status line, and as a warning that goes away."""
    gr.Warning(escape(str(error)))  # it takes HTML, and the message may quote visitors' input
    return view.status(str(error), is_problem=True)


def _contents(turns: Turns) -> tuple[Any, ...]:
    """The values of the components of `_results`."""
    last = turns[-1] if turns else Comparison()
    ended = last.speculative.is_complete
    return (
        view.verdict(last),
        *view.panes(turns),
        view.details(last),
        view.rounds(last.speculative),
        view.draft_tokens_by_round(last.speculative) if ended else None,
        view.time_by_part(last) if ended else None,
    )


def _results(shown: tuple[Any, ...]) -> list[gr.components.Component]:
    """Verdict, panes, details and charts. shown: their initial values."""
    verdict, plain, speculative, details, rounds, by_round, by_part = shown
    made: list[gr.components.Component] = [_html(verdict, "verdict")]
    with gr.Row():
        # In a narrow window, columns of this width wrap.
        for pane, name in ((plain, "plain"), (speculative, "speculative")):
            with gr.Column(min_width=NARROW):
                made.append(_html(pane, name))
    _html(view.legend(), "legend")
    made.append(_html(details, "details"))
    title = "Round by round, with rejected draft tokens struck through"
    with gr.Accordion(title, open=False):
        made.append(_html(rounds, "rounds"))
    with gr.Row():
        title = "Draft tokens per round"
        made.append(_bars(by_round, "round", "draft tokens", "draft token", title))
        made.append(_bars(by_part, "method", "seconds", "part", "Where the time goes"))
    return made


def _html(content: str, name: str) -> gr.HTML:
    return gr.HTML(content, elem_id=name, elem_classes="specdec")


def _bars(value: Any, x: str, y: str, color: str, title: str) -> gr.BarPlot:
    return gr.BarPlot(
        value,
        x=x,
        y=y,
        color=color,
        color_map=COLORS[color],
        title=title,
        y_aggregate="sum",
        height=260,
        min_width=NARROW,
    )
