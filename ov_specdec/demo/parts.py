"""Parts of the demo's pages: panes, buttons, and the display of a run. Needs gradio."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from typing import Any, Protocol, TypeVar

import gradio as gr

from ov_specdec.demo import charts, view
from ov_specdec.demo.comparison import Comparison
from ov_specdec.errors import SpecdecError
from ov_specdec.palette import BLUE, GREEN, GREY, ORANGE

READY = "Ready."
EXAMPLE = "This example ran at the start of the demo."

COLORS = {
    "draft token": {"accepted": BLUE, "rejected": ORANGE},
    "part": {"drafting": BLUE, "verifying": GREEN, "rest": GREY},
    "method": {"plain": GREY, "speculative": BLUE},
}

NARROW = 340
"""Minimum width of a pane or chart in pixels."""

AT_ONCE: dict[str, Any] = {"queue": False, "show_progress": "hidden"}
# The service runs one visitor at a time, so waiting visitors can see that, and can stop. Each holds
# one of gradio's 40 threads; the rest serves the current run and stop buttons.
RUN: dict[str, Any] = {
    "concurrency_id": "runs",
    "concurrency_limit": 32,
    "show_progress": "hidden",  # gradio's progress would fade the status line
}


class Cancels(Protocol):
    """Runs generations for visitors."""

    def cancel(self, visitor: str) -> None:
        """End the visitor's runs."""
        ...


Values = dict[gr.components.Component, Any]
State = TypeVar("State")


def leave_at_end(page: gr.Blocks, service: Cancels) -> None:
    """Cancel a visitor's runs when they leave the page."""

    def leave(request: gr.Request) -> None:
        service.cancel(visitor_of(request))

    page.unload(leave)


def contents(comparison: Comparison, plain: str, speculative: str) -> tuple[Any, ...]:
    """The values of the components of `results`. plain, speculative: the panes."""
    ended = comparison.speculative.is_complete
    return (
        view.verdict(comparison),
        plain,
        speculative,
        view.details(comparison),
        view.rounds(comparison.speculative),
        charts.draft_tokens_by_round(comparison.speculative) if ended else None,
        charts.time_by_part(comparison) if ended else None,
    )


def results(shown: tuple[Any, ...]) -> list[gr.components.Component]:
    """Verdict, panes, details and charts. shown: their initial values."""
    verdict, plain, speculative, details, rounds, by_round, by_part = shown
    made = [_html(verdict, "verdict")]
    with gr.Row():
        # In a narrow window, columns of this width wrap.
        for pane, name in ((plain, "plain"), (speculative, "speculative")):
            with gr.Column(min_width=NARROW):
                made.append(_html(pane, name))
    _html(view.legend(), "legend")
    made.append(_html(details, "details"))
    shows = gr.Checkbox(label="Round by round, with rejected draft tokens struck through")
    made.append(_html(rounds, "rounds", visible=False))
    shows.change(lambda on: gr.update(visible=on), shows, made[-1], **AT_ONCE)
    with gr.Row():
        title = "Draft tokens per round"
        made.append(_bars(by_round, "round", "draft tokens", "draft token", title))
        made.append(_bars(by_part, "method", "seconds", "part", "Where the time goes"))
    return made


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


def connect(
    service: Cancels,
    starts: Sequence[Any],
    stop: gr.Button,
    show: Callable[..., Iterator[Any]],
    inputs: Sequence[gr.components.Component],
    outputs: Sequence[gr.components.Component],
) -> None:
    """Connect events that start a run to its states, and the stop button to its cancellation.

    starts: events, such as a click.
    """

    def cancel(request: gr.Request) -> None:
        service.cancel(visitor_of(request))

    gr.on(starts, show, set(inputs), outputs, **RUN)
    stop.click(cancel, None, None, **AT_ONCE)


def as_html(states: Iterator[tuple[State, str]], empty: State) -> Iterator[tuple[State, str]]:
    """States with their lines as HTML; after an error, the `empty` state and its message."""
    try:
        for state, line in states:
            yield state, view.status(line)
    except SpecdecError as error:
        gr.Warning(escape(str(error)))  # it takes HTML, and the message may quote visitors' input
        yield empty, view.problem(str(error))


def visitor_of(request: gr.Request) -> str:
    """The visitor: a session of the page."""
    return str(request.session_hash)


def _html(content: str, name: str, **arguments: Any) -> gr.HTML:
    return gr.HTML(content, elem_id=name, elem_classes="specdec", **arguments)


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
