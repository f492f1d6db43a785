"""Speech in the demo: one recording transcribed plainly and then speculatively."""

from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

from ov_specdec.baseline import plain_options
from ov_specdec.chunks import Chunk
from ov_specdec.demo.cancellation import Cancellation
from ov_specdec.demo.comparison import Comparison
from ov_specdec.demo.queue import RunQueue, States
from ov_specdec.demo.service import SHOW_EVERY, progress
from ov_specdec.errors import OptionError
from ov_specdec.speech.audio import Audio
from ov_specdec.speech.settings import Task
from ov_specdec.speech.stream import TranscriptionStream
from ov_specdec.speech_pipeline import SpeechPipeline


@dataclass(frozen=True)
class SpeechForm:
    """The values of the controls, in their order on the page. audio: path of a file, or None."""

    audio: str | None
    language: str
    task: Task
    draft_length: int | Literal["auto"]

    @property
    def recording(self) -> Audio:
        """The file; `OptionError` if there is none."""
        if self.audio is None:
            raise OptionError("there is no recording: record one, or choose a file")
        return Path(self.audio)

    def options(self) -> dict[str, Any]:
        """Keyword arguments for `SpeechPipeline.stream`."""
        options = {
            "language": self.language.strip() or None,
            "task": self.task,
            "num_assistant_tokens": self.draft_length,
            "temperature": 0.0,
        }
        return {name: value for name, value in options.items() if value is not None}


@dataclass(frozen=True)
class SpeechService:
    """A speech model, shared by all visitors and used by one run at a time."""

    pipeline: SpeechPipeline
    queue: RunQueue = field(default_factory=RunQueue)

    def compare(self, visitor: str, form: SpeechForm) -> States[Comparison]:
        """States of a comparison, at a rate that can be seen."""
        empty = Comparison(models=self.description)
        recording, options = form.recording, form.options()

        def run(cancellation: Cancellation) -> States[Comparison]:
            shown = 0.0
            states = _compare(self.pipeline, recording, options, cancellation, empty)
            with closing(states):
                for comparison in states:
                    if perf_counter() - shown >= SHOW_EVERY:
                        yield comparison, progress(comparison)
                        shown = perf_counter()
            yield empty, progress(empty)

        yield from self.queue.run(visitor, empty, run)

    @property
    def description(self) -> str:
        """The loaded models, in a line."""
        if self.pipeline.draft is None:
            return f"Drafter: {self.pipeline.drafter}."
        shares = "shares the main model's" if self.pipeline.shares_encoder else "has its own"
        return f"Drafter: {self.pipeline.drafter}. The draft model {shares} encoder."

    def cancel(self, visitor: str) -> None:
        """End the visitor's running generations within one pass, and waiting ones at once."""
        self.queue.cancel(visitor)

    def close(self) -> None:
        """End all runs, and free the models."""
        self.queue.cancel_all()
        self.pipeline.close()


def _compare(
    pipeline: SpeechPipeline,
    recording: Audio,
    options: dict[str, Any],
    cancellation: Cancellation,
    comparison: Comparison,
) -> Generator[Comparison, None, None]:
    """Transcribe plainly, then speculatively; yields the state after each piece of output."""
    runs = ((comparison.plain, plain_options(options)), (comparison.speculative, options))
    for run, chosen in runs:
        if cancellation.is_set():
            run.outcome = "cancelled"
            continue
        stream = pipeline.stream(recording, **chosen)
        cancellation.calls(stream.cancel)
        for _ in run.follow(_pieces(stream), pipeline.tokenizer.decode):
            yield comparison
    yield comparison


def _pieces(stream: TranscriptionStream) -> Generator[Chunk, None, None]:
    """The tokens of a transcription by origin, as chunks of a text."""
    with stream:
        for chunk in stream:
            yield from chunk.pieces
            if chunk.stats is not None:
                stats = chunk.stats.generation
                yield Chunk("", [], "plain", finish_reason=chunk.finish_reason, stats=stats)
