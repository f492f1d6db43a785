"""The page for a speech model: a microphone or file, and transcriptions. Needs gradio."""

from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, get_args

import gradio as gr

from ov_specdec.demo.comparison import Comparison
from ov_specdec.demo.parts import LENGTH_CHOICES, Turns, Values, side_by_side
from ov_specdec.errors import OptionError
from ov_specdec.results.chunks import Chunk
from ov_specdec.speech.settings import Task
from ov_specdec.speech_pipeline import SpeechPipeline

TITLE = "Speculative speech recognition on OpenVINO"
INTRODUCTION = f"""# {TITLE}
A drafter proposes tokens, and the main model verifies them in one pass. Either way the text is the
main model's own; only the speed differs. The panes run **one after the other**; text appears after
each window of up to 30 seconds."""


def make_speech_page(pipeline: SpeechPipeline) -> gr.Blocks:
    """The page of a speech model."""
    models = describe(pipeline)
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
                yield from piece.chunks

    return turn.compare(stream, options)


def describe(pipeline: SpeechPipeline) -> str:
    """The loaded models, in a line."""
    if pipeline.draft is None:
        return f"Drafter: {pipeline.drafter}."
    shares = "shares the main model's" if pipeline.shares_encoder else "has its own"
    return f"Drafter: {pipeline.drafter}. The draft model {shares} encoder."
