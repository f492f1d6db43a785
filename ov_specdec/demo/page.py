"""The pages: for text, with the sweep of temperatures, and for speech. Needs gradio."""

import logging
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, get_args

import gradio as gr
import pandas as pd
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware

from ov_specdec.demo import comparison
from ov_specdec.demo.comparison import STOPPED, Comparison, messages_of, options_of
from ov_specdec.demo.panes import (
    LENGTH_CHOICES,
    NARROW,
    ONE_AT_A_TIME,
    Turns,
    Values,
    html,
    shown_error,
    side_by_side,
    status_html,
)
from ov_specdec.errors import OptionError, SpecdecError
from ov_specdec.pipeline import SpeculativePipeline
from ov_specdec.results.chunks import Chunk
from ov_specdec.results.origins import BLUE, GREY
from ov_specdec.speech.settings import Task
from ov_specdec.speech_pipeline import SpeechPipeline
from ov_specdec.text.prompt import Prompt

TITLE = "Speculative decoding on OpenVINO"
INTRODUCTION = f"""# {TITLE}
A small draft model proposes tokens, and the main model verifies them in one pass: the same text,
only faster."""
SWEEP = """Plain and speculative decoding, interleaved at each temperature, with {} and the
other settings above. The flatter the distribution, the lower the acceptance of draft tokens."""
PROMPTS = (
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

SPEECH_TITLE = "Speculative speech recognition on OpenVINO"
SPEECH_INTRODUCTION = f"""# {SPEECH_TITLE}
A drafter proposes tokens, and the main model verifies them in one pass. Either way the text is the
main model's own; only the speed differs. The panes run **one after the other**; text appears after
each window of up to 30 seconds."""

STYLE = Path(__file__).with_name("style.css")
# No remote fonts: the page works offline.
SANS, MONO = ("system-ui", "sans-serif"), ("ui-monospace", "Menlo", "Consolas", "monospace")


def make_page(pipeline: SpeculativePipeline) -> gr.Blocks:
    """The page. It has a conversation if the model has a chat template."""
    has_chat = pipeline.tokenizer.chat_template is not None
    models, decode = describe(pipeline), pipeline.tokenizer.decode
    example = Comparison(models, MESSAGES[0] if has_chat else "")
    prompt = messages_of([example]) if has_chat else PROMPTS[0]
    most = {"max_new_tokens": comparison.SWEEP_TOKENS, "cache_prompt": False}
    for _ in example.compare(partial(pipeline.stream, prompt), most):
        pass

    def prompt_of(values: Values, turns: Turns) -> Prompt:
        return messages_of(turns, values[system]) if has_chat else str(values[text])

    def run(values: Values, earlier: Turns) -> Iterator[Comparison]:
        options = options_of(form_of(values))
        turn = Comparison(models, values[text] if has_chat else "")
        turn.samples = "temperature" in options and options["seed"] is None
        stream = partial(pipeline.stream, prompt_of(values, [*earlier, turn]))
        return turn.compare(stream, options)

    def form_of(values: Values) -> dict[str, Any]:
        return {name: values[each] for name, each in settings.items()}

    def measure(values: Values) -> Iterator[pd.DataFrame]:
        return comparison.sweep(pipeline, prompt_of(values, values[state]), form_of(values))

    with gr.Blocks(title=TITLE, analytics_enabled=False) as page:
        gr.Markdown(INTRODUCTION, elem_id="introduction")
        text = _text_box(has_chat=has_chat)
        with gr.Accordion("Settings", open=False):
            system = gr.Textbox(
                label="System message", placeholder="none", max_lines=12, visible=has_chat
            )
            settings = _settings()
            gr.Markdown(HISTORY, visible=has_chat)
        inputs = {text, system, *settings.values()}
        with gr.Tab("Side by side"):
            state = side_by_side(run, inputs, example, decode, text if has_chat else None)
        with gr.Tab("Speed against temperature"):
            _sweep_tab(measure, {state, *inputs}, has_chat=has_chat)
    return page


def _text_box(*, has_chat: bool) -> gr.Textbox:
    """The box of the message or prompt, with examples below it."""
    if has_chat:
        text = gr.Textbox(label="Message", placeholder=KEYS_HINT, max_lines=8, autofocus=True)
    else:
        text = gr.Textbox(PROMPTS[0], label="Prompt", lines=3, max_lines=12, elem_id="prompt")
    gr.Examples([[each] for each in (MESSAGES if has_chat else PROMPTS)], text, elem_id="examples")
    return text


def _sweep_tab(
    measure: Callable[[Values], Iterator[pd.DataFrame]],
    inputs: set[gr.components.Component],
    *,
    has_chat: bool,
) -> None:
    """The speed against temperature, of a conversation or a prompt."""

    def sweep(values: Values) -> Iterator[tuple[Any, ...]]:
        try:
            for step, table in enumerate(measure(values), 1):
                rates = table[table["method"] == "speculative"]
                yield status_html(f"{step} of {comparison.NUM_STEPS}."), table, rates
        except SpecdecError as error:
            raise shown_error(error) from error
        # gradio infers nominal axes from an empty table, and keeps them.
        yield status_html("Done."), gr.skip(), gr.skip()

    what = "the conversation up to its last message" if has_chat else "the prompt"
    gr.Markdown(SWEEP.format(what))
    with gr.Row(equal_height=True):
        start = gr.Button("Run", variant="primary", elem_id="sweep")
        stop = gr.Button("Stop", elem_id="stop-sweep")
        with gr.Column(scale=6, min_width=260):
            status = html("sweep-status", status_html("Ready."))
    outputs = [status, *_plots()]
    running = start.click(sweep, inputs, outputs, show_progress_on=status, **ONE_AT_A_TIME)
    running.failure(lambda: status_html(STOPPED), None, status, queue=False)
    stop.click(None, cancels=running)


def _settings() -> dict[str, gr.components.Component]:
    """The controls, by the names of `options_of`."""
    with gr.Row():
        length = gr.Dropdown(LENGTH_CHOICES, value="auto", label="Draft length")
        meaning = "0: the rest of the context"
        most = gr.Number(0, label="Max new tokens", info=meaning, precision=0)
        seed = gr.Number(None, label="Seed", placeholder="none", precision=0)
    with gr.Row():
        temperature = gr.Slider(0, 2, 0, step=0.1, label="Temperature", info="0: greedy")
        top_p = gr.Slider(0, 1, 1, step=0.05, label="top_p", info="1: all tokens")
        top_k = gr.Slider(0, 200, 0, step=1, label="top_k", info="0: all tokens")
    drawn = {"temperature": temperature, "top_p": top_p, "top_k": top_k, "seed": seed}
    return {"draft_length": length, "max_new_tokens": most, **drawn}


def _plots() -> list[gr.LinePlot]:
    """The speed of both methods against temperature, and the acceptance."""
    look: dict[str, Any] = {"x": "temperature", "height": 320, "min_width": NARROW}
    colours = {"plain": GREY, "speculative": BLUE}
    methods = {"color": "method", "color_map": colours, "y_lim": [0, None], "elem_id": "speed"}
    with gr.Row():
        speed = gr.LinePlot(y="tokens/s", title="Speed", **methods, **look)
        title = "Accepted draft tokens"
        return [speed, gr.LinePlot(y="acceptance", title=title, y_lim=[0, 1], **look)]


def describe(pipeline: SpeculativePipeline) -> str:
    """The drafter, the KV caches, the profile and the pairing in a line."""
    models = [("main", pipeline.main), ("draft", pipeline.draft)]
    caches = ", ".join(f"{name} {own.kv} ({own.reason})" for name, own in models if own is not None)
    # Only the name: remote visitors should not see paths.
    profile = "none" if pipeline.profile is None else pipeline.profile.name
    pairing = "" if pipeline.pairing is None else f" Pairing: {pipeline.pairing}."
    return f"Drafter: {pipeline.drafter}. KV cache: {caches}. Profile: {profile}.{pairing}"


def make_speech_page(pipeline: SpeechPipeline) -> gr.Blocks:
    """The page of a speech model."""
    models = describe_speech(pipeline)
    with gr.Blocks(title=SPEECH_TITLE, analytics_enabled=False) as page:
        gr.Markdown(SPEECH_INTRODUCTION, elem_id="introduction")
        with gr.Row():
            # As a file, which `read_audio` decodes: gradio itself needs ffmpeg for most formats.
            audio = gr.Audio(
                sources=["upload", "microphone"],
                type="filepath",
                label="Recording",
                elem_id="recording",
            )
            with gr.Column():
                language = gr.Textbox(label="Language", placeholder="detected", max_lines=1)
                task = gr.Radio(list(get_args(Task)), value="transcribe", label="Task")
                length = gr.Dropdown(LENGTH_CHOICES, value="auto", label="Draft length")

        def run(values: Values, _: Turns) -> Iterator[Comparison]:
            options = {"task": values[task], "num_assistant_tokens": values[length]}
            if spoken := values[language].strip():
                options["language"] = spoken
            return transcribe(pipeline, Comparison(models), values[audio], options)

        inputs, decode = {audio, language, task, length}, pipeline.tokenizer.decode
        side_by_side(run, inputs, Comparison(models), decode)
    return page


def transcribe(
    pipeline: SpeechPipeline, turn: Comparison, audio: str | None, options: dict[str, Any]
) -> Iterator[Comparison]:
    """Transcribe a file with both methods; yields the comparison after each piece of output."""
    if audio is None:
        raise OptionError("there is no recording: record one, or choose a file")

    def stream(**own: Any) -> Generator[Chunk, None, None]:
        with pipeline.stream(Path(audio), temperature=0.0, **own) as pieces:
            for piece in pieces:
                yield from piece.pieces

    return turn.compare(stream, options)


def describe_speech(pipeline: SpeechPipeline) -> str:
    """The loaded models, in a line."""
    if pipeline.draft is None:
        return f"Drafter: {pipeline.drafter}."
    shares = "shares the main model's" if pipeline.shares_encoder else "has its own"
    return f"Drafter: {pipeline.drafter}. The draft model {shares} encoder."


@contextmanager
def serving(page: gr.Blocks, hosts: Sequence[str], **where: Any) -> Iterator[str]:
    """Serve a page in a `with` block; yields its address. hosts: names in Host headers; *: any.

    where: arguments of `launch`. Raises `OptionError` if no port is free.
    """
    guard = Middleware(TrustedHostMiddleware, allowed_hosts=hosts)
    try:
        _, address, shared = page.launch(
            **where,
            quiet=True,
            prevent_thread_lock=True,
            theme=gr.themes.Default(primary_hue="blue", font=SANS, font_mono=MONO),
            css_paths=STYLE,
            # No network calls.
            footer_links=[],
            ssr_mode=False,
            app_kwargs={"middleware": [guard]},
        )
    except OSError as error:
        problem = f"no port of {where['server_name']} is free ({error})"
        raise OptionError(f"{problem}: choose another --port or --host") from error
    try:
        yield shared or address
    finally:
        # Else the server waits until visitors leave, and reports their cut requests as errors.
        page.server.force_exit = True
        logging.getLogger("uvicorn.error").disabled = True
        page.close(verbose=False)
