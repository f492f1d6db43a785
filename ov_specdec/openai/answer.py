"""`Ask`, a parsed request, and `Answer`, the common data of its bodies; and counts of tokens."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from time import time
from typing import Any
from uuid import uuid4

from ov_specdec.openai.errors import Maybe, Part
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
    the request that a response of this endpoint repeats. names: its fields by their options,
    where they are not as in `FIELDS`. tools: fields of items that call them, by the names that the
    model knows.
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
    names: dict[str, str] = field(default_factory=dict)
    tools: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def num_choices(self) -> int:
        """Number of generations."""
        return len(self.prompts) * self.n

    def generations(self) -> list[tuple[Prompt, GenerationOptions]]:
        """Prompt and options of every choice, in the order of their indices."""
        choices = [self.options.copy_with(choice=i) for i in range(self.n)]
        return [(prompt, options) for prompt in self.prompts for options in choices]


def new_call_id() -> str:
    """The id of a call: nine characters, as some chat templates demand."""
    return uuid4().hex[:9]


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


class CachedTokens(Part):
    """Cached tokens of a prompt."""

    cached_tokens: int


class PredictedTokens(Part):
    """Draft tokens from matches, for a request with a prediction."""

    accepted_prediction_tokens: int
    rejected_prediction_tokens: int


class TokenCounts(Part):
    """Counts of tokens."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class Usage(TokenCounts):
    """Counts of tokens, with cached and predicted ones."""

    prompt_tokens_details: CachedTokens
    completion_tokens_details: Maybe[PredictedTokens] = None


class Speculation(Part):
    """Statistics of speculation, in vLLM's shape."""

    mean_acceptance_length: float
    draft_acceptance_rate: float
    acceptance_histogram: list[int]
    num_spec_steps: int
    num_spec_tokens: int
    num_draft_tokens: int
    num_accepted_draft_tokens: int


class SpeculationMetrics(Part):
    """Measurements of an answer with a single choice and draft tokens."""

    speculative_decoding: Speculation


def count(prompt_tokens: int, completion_tokens: int) -> TokenCounts:
    """The counts of a prompt and its output."""
    return TokenCounts(
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
        total_tokens=prompt_tokens + completion_tokens,
    )


def make_usage(ask: Ask, stats: Sequence[GenerationStats]) -> Usage:
    """Counts of tokens. stats: of all choices; those of one prompt count it once."""
    first, predicted = stats[:: ask.n], None
    if ask.has_prediction:  # from matches in the prediction, or in the text so far
        rounds = [r for each in stats for r in each.rounds if r.source == "suffix"]
        accepted = sum(r.num_accepted for r in rounds)
        predicted = PredictedTokens(
            accepted_prediction_tokens=accepted,
            rejected_prediction_tokens=sum(r.num_drafted for r in rounds) - accepted,
        )
    counts = count(
        sum(each.prompt_tokens for each in first), sum(each.generated_tokens for each in stats)
    )
    return Usage(
        **vars(counts),
        prompt_tokens_details=CachedTokens(cached_tokens=sum(each.cached_tokens for each in first)),
        completion_tokens_details=predicted,
    )


def make_metrics(stats: Sequence[GenerationStats]) -> SpeculationMetrics | None:
    """Statistics of speculation; None for several choices or without draft tokens.

    Only rounds with draft tokens count, and only their tokens within the text.
    """
    rounds = [r for r in stats[0].rounds if r.num_drafted] if len(stats) == 1 else []
    if not rounds:
        return None
    accepted = [r.num_accepted for r in rounds]
    longest = max(r.num_drafted for r in rounds)
    num_drafted = sum(r.num_drafted for r in rounds)
    return SpeculationMetrics(
        speculative_decoding=Speculation(
            mean_acceptance_length=1 + sum(accepted) / len(rounds),
            draft_acceptance_rate=sum(accepted) / num_drafted,
            acceptance_histogram=[accepted.count(length) for length in range(longest + 1)],
            num_spec_steps=len(rounds),
            num_spec_tokens=longest,
            num_draft_tokens=num_drafted,
            num_accepted_draft_tokens=sum(accepted),
        )
    )
