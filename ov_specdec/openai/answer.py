"""`Ask`, a parsed request, and `Answer`, the common data of the bodies of its answer."""

from dataclasses import dataclass, field
from itertools import accumulate
from time import time
from typing import Any
from uuid import uuid4

from ov_specdec.options.generation import GenerationOptions
from ov_specdec.options.model import Endpoint
from ov_specdec.results.chunks import ResultBuilder
from ov_specdec.results.stats import GenerationStats
from ov_specdec.text.detokenizer import CharacterStream
from ov_specdec.text.prompt import Prompt
from ov_specdec.text.tokenizer import Tokenizer

PREFIXES = {"chat": "chatcmpl-", "completions": "cmpl-", "responses": "resp_"}
"""Prefixes of the ids of answers, by endpoint."""


@dataclass(frozen=True)
class Ask:
    """A parsed request: prompts, options of the generations, and the form of the answer.

    prompts: each a text, token ids or messages. options: the same for all choices. n: choices for
    each prompt. stream: answer with events. include_usage: end a stream with the counts of tokens.
    usage_in_events: add counts to every event too, of its choice so far. echo: begin with the
    prompt. origins: add the origin of tokens to each piece of a stream. has_prediction: whether a
    text is given that the answer is expected to repeat. user: the caller's name of its user, for
    the log. cache_key: a hint that requests with the same key share prefixes. settings: fields of
    the request that a response of this endpoint repeats.
    """

    endpoint: Endpoint
    model: str | None
    prompts: tuple[Prompt, ...]
    options: GenerationOptions
    n: int = 1
    stream: bool = False
    include_usage: bool = False
    usage_in_events: bool = False
    echo: bool = False
    origins: bool = False
    has_prediction: bool = False
    user: str | None = None
    cache_key: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def num_choices(self) -> int:
        """Number of generations."""
        return len(self.prompts) * self.n

    def generations(self) -> list[tuple[Prompt, GenerationOptions]]:
        """Prompt and options of every choice, in the order of their indices."""
        choices = [self.options.copy_with(choice=i) for i in range(self.n)]
        return [(prompt, options) for prompt in self.prompts for options in choices]


@dataclass
class Answer:
    """The common data of all bodies of one answer.

    model: its served name. created: seconds since 1970. choices: of `Ask.generations`, in that
    order, as far as they have come.
    """

    ask: Ask
    model: str
    tokenizer: Tokenizer
    id: str = field(init=False)
    created: int = field(default_factory=lambda: int(time()))
    choices: list[ResultBuilder] = field(init=False)

    def __post_init__(self) -> None:
        self.id = PREFIXES[self.ask.endpoint] + uuid4().hex
        self.choices = [ResultBuilder() for _ in range(self.ask.num_choices)]

    @property
    def stats(self) -> list[GenerationStats]:
        """The statistics of the choices that have ended."""
        return [choice.stats for choice in self.choices if choice.stats is not None]

    def prompt_text(self, index: int) -> str:
        """The prompt of the choice with this index, for `echo`; empty without."""
        if not self.ask.echo:
            return ""
        prompt = self.ask.prompts[index // self.ask.n]
        return prompt if isinstance(prompt, str) else self.tokenizer.decode_all(list(prompt))  # type: ignore[arg-type]

    def prompt_offsets(self, index: int) -> list[int]:
        """For each token of this prompt, the characters of its text before it."""
        prompt = self.ask.prompts[index // self.ask.n]
        if not isinstance(prompt, str):
            text = CharacterStream(self.tokenizer.piece_after, [])
            ids: list[int] = list(prompt)  # type: ignore[arg-type]
            return [*accumulate((len(text.push(token)) for token in ids), initial=0)][:-1]
        adds = self.ask.options.add_special_tokens is not False
        spans = self.tokenizer.encode_rendered(prompt, add_special_tokens=adds).offsets
        ends = accumulate((end for _, end in spans), max, initial=0)
        # Tokens that the tokenizer adds have an empty span, wherever they are.
        return [
            start if start < end else last for (start, end), last in zip(spans, ends, strict=False)
        ]
