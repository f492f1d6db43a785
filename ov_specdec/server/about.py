"""The description of the served model for clients and the page."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from ov_specdec.loading.compile import LoadedModel
from ov_specdec.loading.locate import embedded_folder
from ov_specdec.pipeline import SpeculativePipeline
from ov_specdec.speech_pipeline import SpeechPipeline

Takes = Literal["messages", "text", "source", "audio"]
"""Input of a model: a conversation, a text to continue, a text to transform, or a recording."""

DRAFTS = {
    "model": "draft tokens from ",
    "both": "draft tokens from matches in the text, or from ",
    "suffix": "draft tokens from matches in the text and in earlier outputs",
    "prompt-lookup": "draft tokens from matches in the text",
    "none": "no draft tokens",
}
"""Descriptions of drafters; after "from" follows the draft model."""


TASKS: Mapping[Takes, str] = {
    "messages": "It answers chat messages",
    "text": "It continues texts",
    "source": "It turns texts into texts, such as summaries or translations",
    "audio": "It transcribes recordings sent to /v1/audio/transcriptions",
}


@dataclass(frozen=True)
class About:
    """A model's description. takes: type of its input. writes_code: whether it is a code model.

    description: its task, device, precision, drafter and context length.
    """

    takes: Takes
    writes_code: bool
    description: str


def about_text(pipeline: SpeculativePipeline) -> About:
    """The description of the model of a pipeline."""
    main, is_embedded = pipeline.main, _is_embedded(pipeline.main, "main")
    takes: Takes = "text" if pipeline.tokenizer.chat_template is None else "messages"
    if main.folder.is_encoder_decoder:
        takes = "source"
    task = TASKS[takes]
    if is_embedded:
        task = "A small model that comes with ov-specdec and continues Python code"
    return About(
        takes,
        is_embedded or "code" in main.folder.path.name.lower(),
        _describe(task, main, pipeline.drafter, pipeline.draft),
    )


def about_speech(pipeline: SpeechPipeline) -> About:
    """The description of the speech model of a pipeline."""
    return About(
        "audio", False, _describe(TASKS["audio"], pipeline.main, pipeline.drafter, pipeline.draft)
    )


def _describe(task: str, main: LoadedModel, drafter: str, draft: LoadedModel | None) -> str:
    drafts = DRAFTS.get(drafter, f"draft tokens from the drafter {drafter}")
    if draft is not None and drafter in DRAFTS:
        drafts += "a smaller model" if _is_embedded(draft, "draft") else draft.folder.path.name
    return (
        f"{task}. It runs on {main.config.device} in {main.config.precision} precision, with "
        f"{drafts}. A prompt and its answer may have {main.runner.max_length:,} tokens together."
    )


def _is_embedded(model: LoadedModel, role: str) -> bool:
    return model.folder.path.resolve() == embedded_folder(role).resolve()
