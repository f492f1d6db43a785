"""The page for a speech model: a microphone or file, and transcriptions. Needs gradio."""

from collections.abc import Iterator
from typing import Any, get_args

import gradio as gr

from ov_specdec.demo import view
from ov_specdec.demo.comparison import Comparison
from ov_specdec.demo.parts import (
    as_html,
    buttons,
    connect,
    contents,
    leave_at_end,
    results,
    visitor_of,
)
from ov_specdec.demo.speech import SpeechForm, SpeechService
from ov_specdec.planning.draft_length import MOST
from ov_specdec.speech.settings import Task

TITLE = "Speculative speech recognition on OpenVINO"
INTRODUCTION = f"""# {TITLE}
A drafter proposes tokens, and the main model verifies them in one pass. Either way the text is the
main model's own; only the speed differs. The panes run **one after the other**; text appears after
each window of up to 30 seconds."""


def make_speech_page(service: SpeechService) -> gr.Blocks:
    """The page of a speech model."""
    with gr.Blocks(title=TITLE, analytics_enabled=False) as page:
        gr.Markdown(INTRODUCTION, elem_id="introduction")
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
                lengths = ["auto", *range(1, MOST + 1)]
                length = gr.Dropdown(lengths, value="auto", label="Draft length")
        form = [audio, language, task, length]
        with gr.Tab("Side by side"):
            (run, stop), status = buttons({"run": "Transcribe", "stop": "Stop"})
            empty = Comparison(models=service.description)
            outputs = [status, *results(contents(empty, *view.panes(empty)))]

        def show(values: dict[Any, Any], request: gr.Request) -> Iterator[tuple[Any, ...]]:
            given = SpeechForm(*(values[control] for control in form))
            states = service.compare(visitor_of(request), given)
            for comparison, line in as_html(states, empty):
                yield line, *contents(comparison, *view.panes(comparison))

        connect(service, [run.click], stop, show, form, outputs)
        leave_at_end(page, service)
    page.queue()
    return page
