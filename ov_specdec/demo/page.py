"""The page for text: layout and events. Needs gradio."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import gradio as gr

from ov_specdec.demo import charts, view
from ov_specdec.demo.comparison import Comparison
from ov_specdec.demo.conversation import Conversation, Turn
from ov_specdec.demo.parts import (
    AT_ONCE,
    COLORS,
    EXAMPLE,
    NARROW,
    READY,
    Values,
    as_html,
    buttons,
    connect,
    contents,
    leave_at_end,
    results,
    visitor_of,
)
from ov_specdec.demo.service import DemoService, Form
from ov_specdec.planning.draft_length import MOST

TITLE = "Speculative decoding on OpenVINO"
INTRODUCTION = f"""# {TITLE}
A small draft model proposes tokens, and the main model verifies them in one pass: the same text,
only faster."""
SWEEP = """Plain and speculative decoding, interleaved at each temperature, with {} and the
other settings above. The flatter the distribution, the lower the acceptance of draft tokens."""
EXAMPLES = (
    "class Stack:",
    "def quicksort(xs):\n",
    'def fibonacci(n):\n    """',
    "import argparse\n\n\ndef main():\n",
)

HISTORY = """Both panes continue **the same conversation**: your messages with the answers of plain
decoding. Each prefills all of it at every turn, so that both do the same work. When it exceeds the
model's context, **Clear** starts a new one."""
KEYS = "Enter sends it, Shift+Enter begins a new line"
MESSAGES = (
    "Why is the sky blue?",
    "Write a Python function that reverses a string.",
    "List the planets of the solar system, from the sun outwards.",
    "Say that again in fewer words.",
)

EXAMPLE_TOKENS = 64
"""Tokens of the example on the page, which runs before the page opens."""

STYLE = Path(__file__).with_name("style.css")
# No remote fonts: the page works offline.
SANS, MONO = ("system-ui", "sans-serif"), ("ui-monospace", "Menlo", "Consolas", "monospace")


def make_page(service: DemoService, devices: Sequence[str]) -> gr.Blocks:
    """The page. devices: names of OpenVINO devices to choose from.

    It has a conversation if the loaded model has a chat template.
    """
    with gr.Blocks(title=TITLE, analytics_enabled=False) as page:
        gr.Markdown(INTRODUCTION, elem_id="introduction")
        if service.models.has_chat_template:
            _conversation(service, devices)
        else:
            _prompt(service, devices)

        leave_at_end(page, service)
    page.queue()
    return page


def launch_arguments() -> dict[str, Any]:
    """Arguments of `launch`: style, and no network calls."""
    theme = gr.themes.Default(primary_hue="blue", font=SANS, font_mono=MONO)
    return {"theme": theme, "css_paths": STYLE, "footer_links": [], "ssr_mode": False}


def stop_serving(page: gr.Blocks) -> None:
    """Close a launched page within a second, even if visitors have it open."""
    # Otherwise the server waits until visitors leave, and reports their cut requests as errors.
    page.server.force_exit = True
    logging.getLogger("uvicorn.error").disabled = True
    page.close(verbose=False)


def _prompt(service: DemoService, devices: Sequence[str]) -> None:
    """A prompt and its continuations."""
    prompt = gr.Textbox(EXAMPLES[0], label="Prompt", lines=3, max_lines=12, elem_id="prompt")
    gr.Examples([[text] for text in EXAMPLES], prompt, label="Examples", elem_id="examples")
    with gr.Accordion("Settings", open=False):
        form = [prompt, *_settings(devices)]
    with gr.Tab("Side by side"):
        _side_by_side(service, form)
    with gr.Tab("Speed against temperature"):
        gr.Markdown(SWEEP.format("the prompt"))
        _temperature(service, form)


def _conversation(service: DemoService, devices: Sequence[str]) -> None:
    """A visitor's conversation and its answers."""
    conversation = gr.State(Conversation())
    with gr.Accordion("Settings", open=False):
        system = gr.Textbox("", label="System message", placeholder="none", lines=2, max_lines=12)
        form = [conversation, *_settings(devices), system]
        gr.Markdown(HISTORY)
    with gr.Tab("Side by side"):
        _turns_side_by_side(service, form)
    with gr.Tab("Speed against temperature"):
        gr.Markdown(SWEEP.format("the conversation up to its last message"))
        _temperature(service, form)


def _settings(devices: Sequence[str]) -> list[gr.components.Component]:
    """The controls of `Form`, except for the first, in its order."""
    with gr.Row():
        names = {
            "draft model": "model",
            "suffix matches": "suffix",
            "both": "both",
            "prompt lookup": "prompt-lookup",
        }
        drafter = gr.Dropdown(list(names.items()), value="model", label="Drafter")
        lengths = ["auto", *range(1, MOST + 1)]
        length = gr.Dropdown(lengths, value="auto", label="Draft length")
        tokens = gr.Slider(1, 512, 128, step=1, label="Max new tokens")
    with gr.Row():
        temperature = gr.Slider(0, 2, 0, step=0.1, label="Temperature", info="0: greedy")
        top_p = gr.Slider(0, 1, 1, step=0.05, label="top_p", info="1: all tokens")
        top_k = gr.Slider(0, 200, 0, step=1, label="top_k", info="0: all tokens")
    with gr.Row():
        seed = gr.Textbox("", label="Seed", placeholder="none", max_lines=1)
        device = gr.Dropdown(devices, value=devices[0], label="Main model on")
        draft_device = gr.Dropdown(devices, value=devices[0], label="Draft model on")
    return [tokens, drafter, length, temperature, top_p, top_k, seed, device, draft_device]


def _side_by_side(service: DemoService, form: list[gr.components.Component]) -> None:
    """The two panes with their controls."""
    (run, stop), status = buttons({"run": "Run", "stop": "Stop"}, EXAMPLE)
    empty = Comparison(models=service.models.description)
    first = service.example(Form(*(field.value for field in form)))
    outputs = [status, *results(contents(first, *view.panes(first)))]

    def show(values: Values, request: gr.Request) -> Iterator[tuple[Any, ...]]:
        states = service.compare(visitor_of(request), _filled(form, values))
        for comparison, line in as_html(states, empty):
            yield line, *contents(comparison, *view.panes(comparison))

    connect(service, [run.click], stop, show, form, outputs)


def _turns_side_by_side(service: DemoService, form: list[gr.components.Component]) -> None:
    """As `_side_by_side`, with a box for the next message and all turns in the panes."""
    conversation, *others = form
    message = gr.Textbox(label="Message", placeholder=KEYS, lines=1, max_lines=8, autofocus=True)
    gr.Examples([[text] for text in MESSAGES], message, label="Examples", elem_id="examples")
    labels = {"run": "Send", "stop": "Stop", "clear": "Clear"}
    (run, stop, clear), status = buttons(labels, EXAMPLE)
    empty = Comparison(models=service.models.description)

    def of(turns: Sequence[Turn]) -> tuple[Any, ...]:
        return contents(turns[-1].comparison if turns else empty, *view.turn_panes(turns))

    # Only an example: a visitor's conversation begins with their first message.
    shown = Conversation()
    first = shown.ask(MESSAGES[0])
    form_of_first = Form(shown, *(field.value for field in others))
    first.comparison = service.example(replace(form_of_first, max_new_tokens=EXAMPLE_TOKENS))
    outputs = [status, *results(of(shown.turns))]

    def send(values: Values, request: gr.Request) -> Iterator[tuple[Any, ...]]:
        held: Conversation = values[conversation]
        turn = held.ask(values[message])
        box: Any = ""
        states = service.compare(visitor_of(request), _filled(form, values))
        for turn.comparison, line in as_html(states, empty):
            yield held, box, line, *of(held.turns)
            box = gr.skip()  # the visitor may have typed the next message
        if unanswered := held.take_back():
            yield held, unanswered.message, gr.skip(), *of(held.turns)

    def begin_anew(held: Conversation, request: gr.Request) -> tuple[Any, ...]:
        service.cancel(visitor_of(request))
        held.clear()
        return view.status(READY), *of(held.turns)

    starts = [run.click, message.submit]
    # gradio frees outputs some time after the visitor leaves.
    connect(service, starts, stop, send, [*form, message], [conversation, message, *outputs])
    clear.click(begin_anew, conversation, outputs, **AT_ONCE)


def _temperature(service: DemoService, form: list[gr.components.Component]) -> None:
    """The sweep over temperatures."""
    (run, stop), status = buttons({"sweep": "Run", "stop-sweep": "Stop"})
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
            title="Accepted draft tokens",
            y_lim=[0, 1],
            height=320,
            min_width=NARROW,
        )

    def show(values: Values, request: gr.Request) -> Iterator[tuple[Any, ...]]:
        states = service.sweep(visitor_of(request), _filled(form, values))
        for points, line in as_html(states, []):
            # gradio infers nominal axes from an empty table, and keeps them.
            speeds, rates = charts.by_temperature(points) if points else (gr.skip(), gr.skip())
            yield line, speeds, rates

    connect(service, [run.click], stop, show, form, [status, speed, acceptance])


def _filled(form: list[gr.components.Component], values: Values) -> Form:
    return Form(*(values[field] for field in form))
