"""The page for text: a prompt or a conversation, and the sweep of temperatures. Needs gradio."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import gradio as gr
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware

from ov_specdec.demo import view
from ov_specdec.demo.comparison import Comparison, messages_of, options_of
from ov_specdec.demo.models import LoadedModels, ModelChoice, describe
from ov_specdec.demo.parts import (
    AT_ONCE,
    COLORS,
    LENGTH_CHOICES,
    NARROW,
    ONE_AT_A_TIME,
    SHOW_WAITING,
    STOPPED,
    Turns,
    Values,
    buttons,
    problem,
    side_by_side,
)
from ov_specdec.errors import SpecdecError
from ov_specdec.text.prompt import Prompt

TITLE = "Speculative decoding on OpenVINO"
INTRODUCTION = f"""# {TITLE}
A small draft model proposes tokens, and the main model verifies them in one pass: the same text,
only faster."""
SWEEP = """Plain and speculative decoding, interleaved at each temperature, with {} and the
other settings above. The flatter the distribution, the lower the acceptance of draft tokens."""
EXAMPLE_PROMPTS = (
    "class Stack:",
    "def quicksort(xs):\n",
    'def fibonacci(n):\n    """',
    "import argparse\n\n\ndef main():\n",
)

HISTORY = """Both panes continue **the same conversation**: your messages with the answers of plain
decoding. Each prefills all of it at every turn, so that both do the same work. When it exceeds the
model's context, **Clear** starts a new one."""
KEYS_HINT = "Enter sends it, Shift+Enter begins a new line"
MESSAGES = (
    "Why is the sky blue?",
    "Write a Python function that reverses a string.",
    "List the planets of the solar system, from the sun outwards.",
    "Say that again in fewer words.",
)

STYLE = Path(__file__).with_name("style.css")
# No remote fonts: the page works offline.
SANS, MONO = ("system-ui", "sans-serif"), ("ui-monospace", "Menlo", "Consolas", "monospace")


def make_page(models: LoadedModels, devices: Sequence[str]) -> gr.Blocks:
    """The page. devices: names of OpenVINO devices to choose from; models are loaded to the first.

    It has a conversation if the model has a chat template.
    """
    with models.lend(ModelChoice("model", devices[0], devices[0])) as pipeline:
        has_chat = pipeline.tokenizer.chat_template is not None
        example = Comparison(MESSAGES[0] if has_chat else "", models=describe(pipeline))
        prompt = messages_of([example]) if has_chat else EXAMPLE_PROMPTS[0]
        options = {"max_new_tokens": view.SWEEP_TOKENS, "cache_prompt": False}
        for _ in example.compare(
            partial(pipeline.stream, prompt), options, pipeline.tokenizer.decode
        ):
            pass
    with gr.Blocks(title=TITLE, analytics_enabled=False) as page:
        gr.Markdown(INTRODUCTION, elem_id="introduction")
        TextPage(models, devices, example).lay_out(has_chat)
    page.queue()
    return page


def launch_arguments(hosts: Sequence[str]) -> dict[str, Any]:
    """Arguments of `launch`: style, no network calls, and names in Host headers; *: any."""
    guard = Middleware(TrustedHostMiddleware, allowed_hosts=hosts)
    theme = gr.themes.Default(primary_hue="blue", font=SANS, font_mono=MONO)
    look = {"theme": theme, "css_paths": STYLE, "footer_links": [], "ssr_mode": False}
    return {**look, "app_kwargs": {"middleware": [guard]}}


def stop_serving(page: gr.Blocks) -> None:
    """Close a launched page within a second, even if visitors have it open."""
    # Otherwise the server waits until visitors leave, and reports their cut requests as errors.
    page.server.force_exit = True
    logging.getLogger("uvicorn.error").disabled = True
    page.close(verbose=False)


@dataclass
class TextPage:
    """The components of the page that its runs read."""

    _models: LoadedModels
    _devices: Sequence[str]
    _example: Comparison
    _fields: dict[str, gr.components.Component] = field(default_factory=dict)
    _system: gr.Textbox | None = None
    _text: gr.Textbox = field(init=False)

    def lay_out(self, has_chat: bool) -> None:
        """Make the components: a prompt, or a conversation."""
        if not has_chat:
            self._text = gr.Textbox(
                EXAMPLE_PROMPTS[0], label="Prompt", lines=3, max_lines=12, elem_id="prompt"
            )
            gr.Examples([[text] for text in EXAMPLE_PROMPTS], self._text, elem_id="examples")
        with gr.Accordion("Settings", open=False):
            if has_chat:
                self._system = gr.Textbox(
                    "", label="System message", placeholder="none", lines=2, max_lines=12
                )
            self._add_settings()
            if has_chat:
                gr.Markdown(HISTORY)
        with gr.Tab("Side by side"):
            if has_chat:
                self._text = gr.Textbox(
                    label="Message", placeholder=KEYS_HINT, lines=1, max_lines=8, autofocus=True
                )
                gr.Examples([[text] for text in MESSAGES], self._text, elem_id="examples")
            message = self._text if has_chat else None
            state = side_by_side(self._run, self._inputs, self._example, message)
        with gr.Tab("Speed against temperature"):
            what = "the conversation up to its last message" if has_chat else "the prompt"
            gr.Markdown(SWEEP.format(what))
            self._add_sweep(state)

    @property
    def _inputs(self) -> set[gr.components.Component]:
        return {self._text, *self._fields.values(), *([self._system] if self._system else [])}

    def _add_settings(self) -> None:
        """The controls, by the names of `options_of` and `ModelChoice`."""
        made = self._fields
        with gr.Row():
            names = {
                "draft model": "model",
                "suffix matches": "suffix",
                "both": "both",
                "prompt lookup": "prompt-lookup",
            }
            made["drafter"] = gr.Dropdown(list(names.items()), value="model", label="Drafter")
            made["draft_length"] = gr.Dropdown(LENGTH_CHOICES, value="auto", label="Draft length")
            meaning = "0: the rest of the context"
            made["max_new_tokens"] = gr.Number(0, label="Max new tokens", info=meaning, precision=0)
        with gr.Row():
            made["temperature"] = gr.Slider(
                0, 2, 0, step=0.1, label="Temperature", info="0: greedy"
            )
            made["top_p"] = gr.Slider(0, 1, 1, step=0.05, label="top_p", info="1: all tokens")
            made["top_k"] = gr.Slider(0, 200, 0, step=1, label="top_k", info="0: all tokens")
        with gr.Row():
            made["seed"] = gr.Number(None, label="Seed", placeholder="none", precision=0)
            for name, label in (("device", "Main model on"), ("draft_device", "Draft model on")):
                made[name] = gr.Dropdown(self._devices, value=self._devices[0], label=label)

    def _read(self, values: Values) -> tuple[dict[str, Any], ModelChoice]:
        """The values of the controls, and the models that they choose."""
        form = {name: values[each] for name, each in self._fields.items()}
        return form, ModelChoice(form["drafter"], form["device"], form["draft_device"])

    def _prompt(self, values: Values, turns: Turns) -> Prompt:
        if self._system is None:
            text: str = values[self._text]
            return text
        return messages_of(turns, values[self._system])

    def _run(self, values: Values, turns: Turns) -> Iterator[None]:
        """Add a comparison; pauses after each piece of it."""
        form, choice = self._read(values)
        options = options_of(form)
        turn = Comparison("" if self._system is None else values[self._text])
        turn.samples = "temperature" in options and options["seed"] is None
        turns.append(turn)
        prompt = self._prompt(values, turns)
        with self._models.lend(choice) as pipeline:
            turn.models = describe(pipeline)
            stream = partial(pipeline.stream, prompt)
            yield from turn.compare(stream, options, pipeline.tokenizer.decode)

    def _add_sweep(self, state: gr.State) -> None:
        """The sweep over temperatures."""
        (run, stop), status = buttons({"sweep": "Run", "stop-sweep": "Stop"})
        look = {"x": "temperature", "height": 320, "min_width": NARROW}
        with gr.Row():
            speed = gr.LinePlot(
                y="tokens/s",
                color="method",
                color_map=COLORS["method"],
                title="Speed",
                y_lim=[0, None],
                elem_id="speed",
                **look,
            )
            acceptance = gr.LinePlot(
                y="acceptance", title="Accepted draft tokens", y_lim=[0, 1], **look
            )

        def show(values: Values) -> Iterator[tuple[Any, ...]]:
            # gradio infers nominal axes from an empty table, and keeps them.
            same = gr.skip(), gr.skip()
            form, choice = self._read(values)
            try:
                prompt = self._prompt(values, values[state])
                with self._models.lend(choice) as pipeline:
                    for step, table in enumerate(view.sweep(pipeline, prompt, form)):
                        now = view.SWEPT_TEMPERATURES[step % len(view.SWEPT_TEMPERATURES)]
                        line = f"{step + 1} of {view.NUM_STEPS}: temperature {now}."
                        rates = table[table["method"] == "speculative"]
                        yield view.status(line), table, rates
                yield view.status("Done."), *same
            except SpecdecError as error:
                yield problem(error), *same

        outputs = [status, speed, acceptance]
        run.click(None, None, status, js=SHOW_WAITING, **AT_ONCE)
        running = run.click(show, {state, *self._inputs}, outputs, **ONE_AT_A_TIME)
        stop.click(lambda: view.status(STOPPED), None, status, cancels=running, **AT_ONCE)
