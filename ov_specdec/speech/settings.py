"""A Whisper's settings, from its configuration files, and its rules for tokens."""

from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import numpy as np
from pydantic import Field, ValidationError
from pydantic.dataclasses import dataclass

from ov_specdec.errors import ModelError, OptionError, suggest
from ov_specdec.files import read_json
from ov_specdec.sampling.logits import Logits
from ov_specdec.sampling.processors import BadWords, LogitsProcessor, MinNewTokens

Task = Literal["transcribe", "translate"]

TIME_PRECISION = 0.02
"""Seconds from one timestamp to the next."""

Id = Annotated[int, Field(ge=0, strict=True)]


class TimedTokens(NamedTuple):
    """Tokens between two times, in seconds from the beginning of the window."""

    start: float
    end: float
    tokens: tuple[int, ...]


@dataclass(frozen=True)
class WhisperSettings:
    """Special ids and limits, under the names of generation_config.json.

    Ids below eos_token_id are text. Ids above no_timestamps_token_id are timestamps, in steps of
    `TIME_PRECISION`; the id before it means no speech. lang_to_id, task_to_id: empty in an
    English-only model. max_target_positions: maximum number of tokens of start, prompt and output.
    max_initial_timestamp_index: latest first timestamp; None: any. alignment_heads: heads for word
    times, each as layer and index; None: all heads of the upper half of layers.
    median_filter_width: positions in the median filter of word times.
    """

    decoder_start_token_id: Id
    eos_token_id: Id
    no_timestamps_token_id: Id
    prev_sot_token_id: Id
    vocab_size: Id
    max_target_positions: Id
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
        known = {
            name: value
            for name, value in [*config.items(), *generation.items()]
            if value not in (None, [], {})
        }
        # Checkpoints from before 2023 lack some ids of languages and tasks.
        known.setdefault("prev_sot_token_id", known.get("no_timestamps_token_id", 0) - 2)
        if not known.get("is_multilingual", True):
            known.update(lang_to_id={}, task_to_id={})
        try:
            return cls(**known)  # ignores all others
        except ValidationError as error:
            found = error.errors(include_url=False)[0]
            name = str(found["loc"][0])
            raise ModelError(
                f"{path} gives {name} as {known.get(name)!r}, which is invalid ({found['msg']}): "
                "correct it there, or export the model again from a checkpoint of transformers"
            ) from error

    @property
    def is_multilingual(self) -> bool:
        """Whether it has languages and tasks; otherwise it only transcribes English."""
        return bool(self.lang_to_id)

    @property
    def timestamp_begin(self) -> int:
        """The id of the timestamp at 0 seconds."""
        return self.no_timestamps_token_id + 1

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

    def language_id(self, language: str) -> int | None:
        """The id of a language, named "en", "English" or "<|en|>"; None if it is English-only.

        Raises `OptionError` for one that the model does not know.
        """
        name = language.strip().lower()
        if not self.is_multilingual:
            if name not in ("en", "english", "<|en|>"):
                raise OptionError(
                    "{language} is not known to this model: it has 'en' only", language=language
                )
            return None
        codes = {token.strip("<|>"): id_ for token, id_ in self.lang_to_id.items()}
        if (code := name.removeprefix("<|").removesuffix("|>")) in codes:
            return codes[code]
        # Imports torch if that is installed, so only if the language is not given as a code.
        from transformers.models.whisper.tokenization_whisper import TO_LANGUAGE_CODE as CODES

        if (code := CODES.get(name, "")) in codes:
            return codes[code]
        known = [*codes, *(full for full, code in CODES.items() if code in codes)]
        hint = suggest(name, known, f"there are: {', '.join(sorted(codes))}", most=1)
        raise OptionError(f"{{language}} is not known to this model: {hint}", language=language)

    def language_code(self, token_id: int | None) -> str:
        """The code of a language, such as "en", by its id; None in an English-only model."""
        names = {id_: name.strip("<|>") for name, id_ in self.lang_to_id.items()}
        return "en" if token_id is None else names[token_id]

    def check_task(self, task: str) -> None:
        """Refuse a task that this model does not support."""
        known = list(self.task_to_id) or ["transcribe"]
        if task not in known:
            others = "" if self.is_multilingual else ": this model is English-only"
            raise OptionError(f"{{task}} is not one of {', '.join(known)}{others}", task=task)

    def split(
        self, tokens: Sequence[int], length: int, frame_seconds: float
    ) -> tuple[list[TimedTokens], int]:
        """Cut a window's output, without end-of-sequence token, where timestamps come in pairs.

        Text after the last pair is unfinished, and is decoded again with the next window, unless
        the output ends with a single timestamp. Without a pair the whole output is one segment.
        Returns segments, and the number of frames to the next window. length: frames of this one.
        Source: section 4.5 of Radford et al. (arXiv 2212.04356), as in transformers.
        """
        marks = [self.is_timestamp(token) for token in tokens]
        times = [(token - self.timestamp_begin) * TIME_PRECISION for token in tokens]
        cuts = [i + 1 for i in range(len(tokens) - 1) if marks[i] and marks[i + 1]]
        if not cuts:
            last = ([0.0] + [time for time, mark in zip(times, marks, strict=True) if mark])[-1]
            return [TimedTokens(0.0, last or length * frame_seconds, tuple(tokens))], length
        if ends_in_one := marks[-2:] == [False, True]:
            cuts.append(len(tokens))
        else:
            length = round(times[cuts[-1] - 1] / frame_seconds)
            cuts[-1] += 1  # both timestamps of the last pair belong to the last segment
        segments = []
        for start, end in zip([0, *cuts], cuts, strict=False):
            closing = end - 1 if end < cuts[-1] or ends_in_one else end - 2
            segments.append(TimedTokens(times[start], times[closing], tuple(tokens[start:end])))
        return segments, length

    def processors(self, begin: int, *, timestamps: bool) -> list[LogitsProcessor]:
        """Its rules, in the order of transformers. begin: length of start and prompt."""
        chain: list[LogitsProcessor] = [
            MinNewTokens(1, begin, frozenset(self.begin_suppress_tokens)),
            BadWords([[token] for token in self.suppress_tokens]),
        ]
        return [*chain, TimestampRule(self, begin)] if timestamps else chain


@dataclass(frozen=True)
class TimestampRule:
    """Forces timestamps first, in pairs and in order, and before text if they are more likely.

    Timestamps come in pairs, except for one at the end. They never decrease, the first of a pair
    is later than the last pair, and the first of all is at most `max_initial_timestamp_index`. If
    all timestamps together are more likely than any other token, one of them must follow.
    begin: length of start and prompt.
    Source: `WhisperTimeStampLogitsProcessor` of transformers; Radford et al. (arXiv 2212.04356).
    """

    settings: WhisperSettings
    begin: int

    def __call__(self, tokens: Sequence[int], logits: Logits) -> Logits:
        """The row with -inf at the tokens that the rule forbids."""
        first = self.settings.timestamp_begin
        result = logits.copy()
        result[self.settings.no_timestamps_token_id] = -np.inf
        output = tokens[self.begin :]
        if not output:
            result[:first] = -np.inf
            if (latest := self.settings.max_initial_timestamp_index) is not None:
                result[first + latest + 1 :] = -np.inf
            return result
        after_timestamp = output[-1] >= first
        in_pair = after_timestamp and (len(output) < 2 or output[-2] >= first)
        if in_pair:
            result[first:] = -np.inf
        elif after_timestamp:
            result[: self.settings.eos_token_id] = -np.inf
        if last := next((token for token in reversed(output) if token >= first), 0):
            opens_pair = after_timestamp and not in_pair
            result[first : last if opens_pair else last + 1] = -np.inf
        timestamps = result[first:]
        peak = timestamps.max(initial=-np.inf)
        together = peak + np.log(np.exp(timestamps - peak).sum()) if peak > -np.inf else peak
        if together > result[:first].max():
            result[:first] = -np.inf
        return result


def allow_only(allowed: Sequence[int], _tokens: Sequence[int], logits: Logits) -> Logits:
    """The row with -inf at all other ids, whatever the history."""
    result = np.full_like(logits, -np.inf)
    result[[*allowed]] = logits[[*allowed]]
    return result
