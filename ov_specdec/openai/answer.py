"""`Ask`, a parsed request, and `Answer`, which is written as events or whole; counts of tokens."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from time import time
from uuid import uuid4

from ov_specdec.openai.errors import ApiError, Json, encode_event
from ov_specdec.options.generation import GenerationOptions
from ov_specdec.options.model import Endpoint
from ov_specdec.results.chunks import Chunk, ResultBuilder
from ov_specdec.results.stats import GenerationStats
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
    settings: Json = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    tools: dict[str, Json] = field(default_factory=dict)

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
    """Makes events of the chunks that come, or a body that is sent whole.

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

    def note(self, index: int, chunk: Chunk) -> None:
        """Note a chunk of the choice with this index."""
        self.choices[index].add(chunk)

    def fail(self, error: ApiError) -> bytes:
        """The events that end a failed stream."""
        return encode_event(error.body())


def new_call_id() -> str:
    """The id of a call: nine characters, as some chat templates demand."""
    return uuid4().hex[:9]


def count(prompt_tokens: int, completion_tokens: int) -> Json:
    """The counts of a prompt and its output."""
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    }


def make_usage(ask: Ask, stats: Sequence[GenerationStats]) -> Json:
    """Counts of tokens. stats: of all choices; those of one prompt count it once.

    With a prediction, also of draft tokens from matches in it, or in the text so far.
    """
    first = stats[:: ask.n]
    usage: Json = {
        **count(
            sum(each.prompt_tokens for each in first), sum(each.generated_tokens for each in stats)
        ),
        "prompt_tokens_details": {"cached_tokens": sum(each.cached_tokens for each in first)},
    }
    if ask.has_prediction:
        rounds = [r for each in stats for r in each.rounds if r.source == "suffix"]
        accepted = sum(r.num_accepted for r in rounds)
        usage["completion_tokens_details"] = {
            "accepted_prediction_tokens": accepted,
            "rejected_prediction_tokens": sum(r.num_drafted for r in rounds) - accepted,
        }
    return usage


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
