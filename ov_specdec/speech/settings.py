"""Settings from a Whisper's configuration files: special ids, limits, and suppressed tokens."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ov_specdec.errors import ModelError, Option, OptionError
from ov_specdec.files import read_json

Task = Literal["transcribe", "translate"]

TIME_PRECISION = 0.02
"""Seconds from one timestamp to the next."""


@dataclass(frozen=True)
class WhisperSettings:
    """Special ids and limits, under the names of generation_config.json.

    Ids below eos_token_id are text. Ids above no_timestamps_token_id are timestamps, in steps of
    `TIME_PRECISION`; the id before it means no speech. lang_to_id, task_to_id: empty in an
    English-only model. max_target_positions: maximum number of tokens of start, prompt and output.
    max_initial_timestamp_index: latest first timestamp; None: any. alignment_heads: heads for word
    times, each as layer and index; None: all heads of the upper half of layers.
    median_filter_width: places in the median filter of word times.
    """

    decoder_start_token_id: int
    eos_token_id: int
    no_timestamps_token_id: int
    prev_sot_token_id: int
    vocab_size: int
    max_target_positions: int
    lang_to_id: Mapping[str, int] = field(default_factory=dict)
    task_to_id: Mapping[str, int] = field(default_factory=dict)
    suppress_tokens: tuple[int, ...] = ()
    begin_suppress_tokens: tuple[int, ...] = ()
    max_initial_timestamp_index: int | None = None
    alignment_heads: tuple[tuple[int, int], ...] | None = None
    median_filter_width: int = 7

    @classmethod
    def read(cls, folder: Path) -> "WhisperSettings":
        """Read the settings of a model folder; `ModelError` if it is not a Whisper."""
        config = read_json(folder / "config.json")
        path = folder / "generation_config.json"
        generation = read_json(path) if path.is_file() else {}
        if config.get("model_type") != "whisper":
            raise ModelError(
                f"{folder} holds a model of type {config.get('model_type')!r}, which does not "
                "transcribe: give a Whisper; for text use ov-specdec generate"
            )
        # Checkpoints from before 2023 lack some ids of languages and tasks.
        known = {**config, **{k: v for k, v in generation.items() if v is not None}}
        known.setdefault("prev_sot_token_id", known.get("no_timestamps_token_id", 0) - 2)
        names = ("decoder_start_token_id", "eos_token_id", "no_timestamps_token_id")
        sizes = ("prev_sot_token_id", "vocab_size", "max_target_positions")
        ids = {name: _as_id(path, name, known.get(name)) for name in (*names, *sizes)}
        multilingual = known.get("is_multilingual", True)
        latest = known.get("max_initial_timestamp_index")
        return cls(
            **ids,
            lang_to_id=known.get("lang_to_id") or {} if multilingual else {},
            task_to_id=known.get("task_to_id") or {} if multilingual else {},
            suppress_tokens=tuple(known.get("suppress_tokens") or ()),
            begin_suppress_tokens=tuple(known.get("begin_suppress_tokens") or ()),
            max_initial_timestamp_index=latest,
            alignment_heads=_as_heads(path, known.get("alignment_heads")),
            median_filter_width=known.get("median_filter_width", 7),
        )

    @property
    def is_multilingual(self) -> bool:
        """Whether it has languages and tasks; otherwise it only transcribes English."""
        return bool(self.lang_to_id)

    @property
    def language_ids(self) -> tuple[int, ...]:
        """The ids of all languages."""
        return tuple(self.lang_to_id.values())

    @property
    def timestamp_begin(self) -> int:
        """The id of the timestamp at 0 seconds."""
        return self.no_timestamps_token_id + 1

    @property
    def no_speech_token_id(self) -> int:
        """The id of no speech, whose probability is read after the start of a transcript."""
        return self.no_timestamps_token_id - 1

    @property
    def max_prompt_length(self) -> int:
        """Maximum tokens of previous text, which leaves half of the context to the output."""
        return self.max_target_positions // 2 - 1

    def is_text(self, token: int) -> bool:
        """Whether a token is text."""
        return token < self.eos_token_id

    def is_timestamp(self, token: int) -> bool:
        """Whether a token is a timestamp."""
        return token >= self.timestamp_begin

    def start_tokens(self, language_id: int | None, task: Task, timestamps: bool) -> list[int]:
        """The first tokens of every output. language_id: None for an English-only model."""
        tokens = [self.decoder_start_token_id]
        if language_id is not None:
            tokens += [language_id, self.task_to_id[task]]
        return tokens if timestamps else [*tokens, self.no_timestamps_token_id]

    def check_task(self, task: str) -> None:
        """Refuse a task that this model does not support."""
        known = list(self.task_to_id) or ["transcribe"]
        if task not in known:
            others = "" if self.is_multilingual else ": this model is English-only"
            raise OptionError(Option("task", task), f" is not one of {', '.join(known)}{others}")


def _as_heads(path: Path, value: Any) -> tuple[tuple[int, int], ...] | None:
    if not value:
        return None
    try:
        return tuple((int(layer), int(head)) for layer, head in value)
    except (TypeError, ValueError) as error:
        raise ModelError(
            f"{path} gives alignment_heads as {value!r}, which are not pairs of layer and head: "
            "correct them there, or leave them out"
        ) from error


def _as_id(path: Path, name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ModelError(
            f"{path} gives {name} as {value!r}, and speech needs it as a number: export the model "
            "again from a checkpoint of transformers"
        )
    return value
