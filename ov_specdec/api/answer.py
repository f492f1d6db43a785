"""Answers of generations, and the forms in which their pieces are sent."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from time import time
from typing import Any, ClassVar, Generic, TypeVar
from uuid import uuid4

from ov_specdec.api.body import Body
from ov_specdec.api.errors import ApiError, Json
from ov_specdec.results.chunks import ResultBuilder
from ov_specdec.results.stats import GenerationStats
from ov_specdec.text.tokenizer import Tokenizer

B = TypeVar("B", bound=Body)

LINE_ENDS = {ord(end): f"\\u{ord(end):04x}" for end in "\x85\u2028\u2029"}
"""Characters that clients such as httpx treat as line ends, and JSON does not escape."""


def encode_line(content: Json) -> bytes:
    """A JSON object as a line, without its end."""
    told = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return told.translate(LINE_ENDS).encode()


def encode_event(content: Json, name: str | None = None) -> bytes:
    """A server-sent event whose data is a JSON object."""
    head = b"" if name is None else f"event: {name}\n".encode()
    return b"%bdata: %b\n\n" % (head, encode_line(content))


@dataclass
class Answer(Generic[B]):
    """Makes pieces of a stream from chunks, or a body that is sent whole.

    model: the served name. created: seconds since 1970. choices: those of the first prompt of the
    request, then of the next, as far as they have come.
    """

    prefix: ClassVar[str] = ""
    """Of its id."""

    request: B
    model: str
    tokenizer: Tokenizer
    id: str = field(init=False)
    created: int = field(default_factory=lambda: int(time()))
    choices: list[ResultBuilder] = field(init=False)

    def __post_init__(self) -> None:
        self.id = self.prefix + uuid4().hex
        self.choices = [ResultBuilder() for _ in range(self.request.num_choices)]

    @property
    def media_type(self) -> str:
        """Of a whole one."""
        return "application/json"

    @property
    def is_streamed(self) -> bool:
        """Whether it is sent in pieces."""
        return bool(getattr(self.request, "stream", None))

    @property
    def stats(self) -> list[GenerationStats]:
        """The statistics of the choices that have ended."""
        return [choice.stats for choice in self.choices if choice.stats is not None]

    def begin(self) -> list[bytes]:
        """The pieces before any chunk."""
        return []

    def note(self, index: int, chunk: Any) -> None:
        """Note a chunk of the choice with this index."""
        self.choices[index].add(chunk)

    def add(self, index: int, chunk: Any) -> list[bytes]:
        """Note a chunk; its pieces."""
        raise NotImplementedError

    def end(self) -> list[bytes]:
        """The pieces after the last chunk."""
        raise NotImplementedError

    def fail(self, error: ApiError) -> bytes:
        """What ends a failed stream."""
        raise NotImplementedError

    def whole(self) -> Json | str:
        """The body of an answer that is not streamed: a JSON object, or a text."""
        raise NotImplementedError


def new_call_id() -> str:
    """The id of a call: nine characters, as some chat templates demand."""
    return uuid4().hex[:9]


def make_metrics(stats: Sequence[GenerationStats]) -> Json:
    """The field `metrics` with statistics of speculation, in vLLM's shape.

    Empty for several choices or without draft tokens. Only rounds with draft tokens count, and only
    their tokens within the text.
    """
    rounds = [r for r in stats[0].rounds if r.num_drafted] if len(stats) == 1 else []
    if not rounds:
        return {}
    accepted = [r.num_accepted for r in rounds]
    longest = max(r.num_drafted for r in rounds)
    num_drafted = sum(r.num_drafted for r in rounds)
    speculation = {
        "mean_acceptance_length": 1 + sum(accepted) / len(rounds),
        "draft_acceptance_rate": sum(accepted) / num_drafted,
        "acceptance_histogram": [accepted.count(length) for length in range(longest + 1)],
        "num_spec_steps": len(rounds),
        "num_spec_tokens": longest,
        "num_draft_tokens": num_drafted,
        "num_accepted_draft_tokens": sum(accepted),
    }
    return {"metrics": {"speculative_decoding": speculation}}
