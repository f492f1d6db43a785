"""The page: its layout, and which control starts what. Needs gradio."""

import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import gradio as gr

from ov_specdec.demo import charts, view
from ov_specdec.demo.comparison import Comparison
from ov_specdec.demo.service import DemoService, Form
from ov_specdec.errors import SpecdecError
from ov_specdec.palette import BLUE, GREEN, GREY, ORANGE
from ov_specdec.speculation.adaptive import LENGTHS

TITLE = "Speculative decoding on OpenVINO"
PLAIN, SPECULATIVE = "Plain decoding", "Speculative decoding"
INTRODUCTION = f"""# {TITLE}
A small draft model proposes tokens, and the main model verifies them in one pass. The text is the
main model's own either way; only the speed differs. The panes run **one after the other**, so that
neither takes the other's cores."""
SWEEP = """Plain and speculative decoding in turns at each temperature, with the prompt and the
other settings above. The flatter the distribution, the less often the draft guesses right."""
EXAMPLES = (
    "def quicksort(xs):\n",
    'def fibonacci(n):\n    """',
    "class Stack:\n    def __init__(self):\n",
    "import argparse\n\n\ndef main():\n",
)

STYLE = Path(__file__).with_name("style.css")
# No fonts from elsewhere: the page works offline.
SANS, MONO = ("system-ui", "sans-serif"), ("ui-monospace", "Menlo", "Consolas", "monospace")

COLORS = {
    "candidate": {"accepted": BLUE, "rejected": ORANGE},
    "part": {"drafting": BLUE, "verifying": GREEN, "rest": GREY},
    "method": {"plain": GREY, "speculative": BLUE},
}

NARROW = 340
"""Pixels that a pane or a chart needs."""

AT_ONCE: dict[str, Any] = {"queue": False, "show_progress": "hidden"}
# The service lets one run use the models at a time: so who waits can see that, and can stop.
# Each of them holds one of gradio's 40 threads; some are left for the run that goes on, and stops.
RUN: dict[str, Any] = {
    "concurrency_id": "runs",
    "concurrency_limit": 32,
    "show_progress": "hidden",  # gradio's would fade the line of status
}

Values = dict[gr.components.Component, Any]
State = TypeVar("State")


def make_page(service: DemoService, devices: Sequence[str]) -> gr.Blocks:
    """The page. devices: names of OpenVINO devices to choose from."""
    with gr.Blocks(title=TITLE, analytics_enabled=False) as page:
        gr.Markdown(INTRODUCTION)
        form = _controls(devices)
        with gr.Tab("Side by side"):
            _side_by_side(service, form)
        with gr.Tab("Speed against temperature"):
            _temperature(service, form)

        def leave(request: gr.Request) -> None:
            service.cancel(_visitor(request))

        page.unload(leave)
    page.queue()
    return page


def launch_arguments() -> dict[str, Any]:
    """How the page is served: its looks, and nothing that calls out."""
    theme = gr.themes.Default(primary_hue="blue", font=SANS, font_mono=MONO)
    return {"theme": theme, "css_paths": STYLE, "footer_links": [], "ssr_mode": False}


def stop_serving(page: gr.Blocks) -> None:
    """Close a page that was launched, within a second, whoever has it open."""
    # Otherwise the server waits until visitors leave; what it cuts short it reports as errors.
    page.server.force_exit = True
    logging.getLogger("uvicorn.error").disabled = True
    page.close(verbose=False)


def _controls(devices: Sequence[str]) -> list[gr.components.Component]:
    """The controls, in the order of `Form`."""
    with gr.Row():
        with gr.Column(scale=3):
            prompt = gr.Textbox(EXAMPLES[0], label="Prompt", lines=5, max_lines=12)
            gr.Examples([[text] for text in EXAMPLES], prompt, label="Examples")
        with gr.Column(scale=4):
            with gr.Row():
                names = {"draft model": "model", "prompt lookup": "prompt-lookup", "both": "both"}
                drafter = gr.Dropdown(list(names.items()), value="model", label="Drafter")
                lengths = ["auto", *range(1, int(LENGTHS[-1]) + 1)]
                length = gr.Dropdown(lengths, value="auto", label="Draft length")
                tokens = gr.Slider(1, 512, 128, step=1, label="Max new tokens")
            with gr.Row():
                temperature = gr.Slider(0, 2, 0, step=0.1, label="Temperature", info="0: greedy")
                top_p = gr.Slider(0, 1, 1, step=0.05, label="top_p", info="1: all tokens")
                top_k = gr.Slider(0, 200, 0, step=1, label="top_k", info="0: all tokens")
            with gr.Row():
                seed = gr.Textbox(label="Seed", placeholder="none", max_lines=1)
                device = gr.Dropdown(devices, value=devices[0], label="Main model on")
                draft_device = gr.Dropdown(devices, value=devices[0], label="Draft model on")
    models = (device, draft_device)
    return [prompt, tokens, drafter, length, temperature, top_p, top_k, seed, *models]


def _side_by_side(service: DemoService, form: list[gr.components.Component]) -> None:
    """The two panes, with what belongs to them."""
    run, stop, status = _buttons("run", "stop")
    empty = Comparison(models=service.models.description)
    verdict = _html(view.verdict(empty), "verdict")
    with gr.Row():
        # Columns of this width stand one below the other in a narrow window.
        with gr.Column(min_width=NARROW):
            plain = _html(view.pane(empty.plain, PLAIN), "plain")
        with gr.Column(min_width=NARROW):
            drafted = _html(view.pane(empty.speculative, SPECULATIVE), "speculative")
    _html(view.legend(), "legend")
    details = _html(view.details(empty), "details")
    by_round = gr.Checkbox(label="Round by round, with rejected candidates struck through")
    rounds = _html(view.rounds(empty.speculative), "rounds", visible=False)
    with gr.Row():
        candidates = _bars("round", "candidates", "candidate", "Candidates per round")
        times = _bars("method", "seconds", "part", "Where the time goes")

    def show(values: Values, request: gr.Request) -> Iterator[tuple[Any, ...]]:
        states = service.compare(_visitor(request), _filled(form, values))
        for comparison, line in _as_html(states, empty):
            ended = comparison.speculative.is_complete
            yield (
                line,
                view.verdict(comparison),
                view.pane(comparison.plain, PLAIN),
                view.pane(comparison.speculative, SPECULATIVE),
                view.details(comparison),
                view.rounds(comparison.speculative),
                charts.candidates_by_round(comparison.speculative) if ended else None,
                charts.time_by_part(comparison) if ended else None,
            )

    outputs = [status, verdict, plain, drafted, details, rounds, candidates, times]
    _connect(service, (run, stop), show, form, outputs)
    by_round.change(lambda on: gr.update(visible=on), by_round, rounds, **AT_ONCE)


def _temperature(service: DemoService, form: list[gr.components.Component]) -> None:
    """The sweep over temperatures."""
    gr.Markdown(SWEEP)
    run, stop, status = _buttons("sweep", "stop-sweep")
    with gr.Row():
        speed = gr.LinePlot(
            x="temperature",
            y="tokens/s",
            color="method",
            color_map=COLORS["method"],
            title="Speed",
            y_lim=[0, None],
            height=320,
            min_width=NARROW,
            elem_id="speed",
        )
        acceptance = gr.LinePlot(
            x="temperature",
            y="acceptance",
            title="Accepted candidates",
            y_lim=[0, 1],
            height=320,
            min_width=NARROW,
        )

    def show(values: Values, request: gr.Request) -> Iterator[tuple[Any, ...]]:
        states = service.sweep(_visitor(request), _filled(form, values))
        for points, line in _as_html(states, []):
            # From an empty table gradio would take numbers for names, and keep to it.
            speeds, rates = charts.by_temperature(points) if points else (gr.skip(), gr.skip())
            yield line, speeds, rates

    _connect(service, (run, stop), show, form, [status, speed, acceptance])


def _buttons(run_id: str, stop_id: str) -> tuple[gr.Button, gr.Button, gr.HTML]:
    """Run, stop, and a line of status."""
    with gr.Row(equal_height=True):
        run = gr.Button("Run", variant="primary", elem_id=run_id, scale=1, min_width=120)
        stop = gr.Button("Stop", elem_id=stop_id, scale=1, min_width=120)
        with gr.Column(scale=6, min_width=260):
            status = _html(view.status("Ready."), f"{run_id}-status")
    return run, stop, status


def _connect(
    service: DemoService,
    buttons: tuple[gr.Button, gr.Button],
    show: Callable[..., Iterator[Any]],
    form: list[gr.components.Component],
    outputs: list[gr.components.Component],
) -> None:
    """Let the run button show states, and the stop button cancel that."""
    run, stop = buttons

    def cancel(request: gr.Request) -> None:
        service.cancel(_visitor(request))

    run.click(show, set(form), outputs, **RUN)
    stop.click(cancel, None, None, **AT_ONCE)


def _as_html(states: Iterator[tuple[State, str]], empty: State) -> Iterator[tuple[State, str]]:
    """States with their lines as HTML; after an error, its message beside the `empty` state."""
    try:
        for state, line in states:
            yield state, view.status(line)
    except SpecdecError as error:
        gr.Warning(str(error))
        yield empty, view.problem(str(error))


def _filled(form: list[gr.components.Component], values: Values) -> Form:
    return Form(*(values[field] for field in form))


def _visitor(request: gr.Request) -> str:
    return str(request.session_hash)


def _html(content: str, name: str, **arguments: Any) -> gr.HTML:
    return gr.HTML(content, elem_id=name, elem_classes="specdec", **arguments)


def _bars(x: str, y: str, color: str, title: str) -> gr.BarPlot:
    return gr.BarPlot(
        x=x,
        y=y,
        color=color,
        color_map=COLORS[color],
        title=title,
        y_aggregate="sum",
        height=260,
        min_width=NARROW,
    )
