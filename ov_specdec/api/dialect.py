"""`Dialect`: an interface over HTTP as a table of what its paths take and what answers them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import time
from typing import Any, NamedTuple

from ov_specdec.api.answer import Answer
from ov_specdec.api.body import Body
from ov_specdec.api.errors import ApiError, Json, invalid
from ov_specdec.errors import ContextLengthError, shorten
from ov_specdec.options.generation import GenerationOptions
from ov_specdec.results.stats import NOT_INVARIANT, BatchInvariance
from ov_specdec.text.generated_tokens import GeneratedTokens
from ov_specdec.text.prompt import Prompt, encode_prompt
from ov_specdec.text.tokenizer import Tokenizer

LATEST = ":latest"


@dataclass(frozen=True)
class Served:
    """The model that is served, for answers about it.

    names: answers have the first. most: maximum tokens of a request. model_type: the family, as in
    config.json. max_length: of prompt and output, in tokens. parsers: of calls and reasoning, by
    the names of options. started: in seconds since 1970.
    """

    names: Sequence[str]
    most: int
    tokenizer: Tokenizer
    model_type: str
    max_length: int
    batch_invariant: BatchInvariance = NOT_INVARIANT
    parsers: tuple[str, str] = ("none", "none")
    started: int = field(default_factory=lambda: int(time()))

    def encode(self, prompt: Prompt, options: GenerationOptions) -> list[int]:
        """The ids of a prompt; `ApiError` if it is longer than any request may be."""
        most = max(self.max_length, self.most)
        try:
            return encode_prompt(prompt, options, self.tokenizer, GeneratedTokens(), most)
        except ContextLengthError as error:
            message = f"the prompt has more than max_request_tokens={most} tokens: send less"
            raise invalid(None, message, "too_many_tokens") from error


def check_model(name: str | None, names: Sequence[str]) -> None:
    """Refuse a model that is not served; None is accepted, and Ollama's tag of the latest."""
    known = {each.removesuffix(LATEST) for each in names}
    if name is not None and name.removesuffix(LATEST) not in known:
        raise ApiError(
            404,
            f"the model {shorten(name)} is not served here: it is '{names[0]}'",
            "model",
            "model_not_found",
        )


class Generating(NamedTuple):
    """What is posted to a path that generates, and makes the answer, given the model's name.

    media_types: of whole answers, besides JSON.
    """

    body: type[Body]
    answer: Callable[[Any, str, Tokenizer], Answer[Any]]
    media_types: Sequence[str] = ()


class Query(Body):
    """What is asked of the model that is served, and answered at once."""

    model: str | None = None

    def answer(self, served: Served) -> Json:
        """The body of the answer; raises `ApiError`. May take long."""
        raise NotImplementedError


@dataclass(frozen=True)
class Framing:
    """How answers are streamed. ping: sent while nothing else is, if the dialect has such."""

    media_type: str = "text/event-stream"
    ping: bytes = b": ping\n\n"


@dataclass(frozen=True)
class Dialect:
    """An interface over HTTP.

    error: the body of an error. prefix: of its paths; errors of all that begin so are in its form.
    posts: what is sent to its paths. pages: what they show, given a `Served` and what their
    {parameters} hold. stream: how answers come in pieces. key_headers: those that may hold an API
    key, besides `Authorization: Bearer`.
    """

    error: Callable[[ApiError], Json]
    prefix: str
    posts: Mapping[str, Generating | type[Query]]
    pages: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    stream: Framing = Framing()
    key_headers: Sequence[str] = ()
