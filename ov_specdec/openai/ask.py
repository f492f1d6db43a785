"""`Ask`: a parsed request."""

from dataclasses import dataclass, field
from typing import Any

from ov_specdec.description import Endpoint
from ov_specdec.text.prompt import Prompt


@dataclass(frozen=True)
class Ask:
    """A parsed request: prompts, options of the generations, and the form of the answer.

    prompts: each a text, token ids or messages. options: keyword arguments of
    `SpeculativePipeline.generate`, the same for all choices. n: choices for each prompt.
    stream: answer with events. include_usage: end a stream with the counts of tokens.
    usage_in_events: add counts to every event too, of its choice so far. logprobs: number of most
    likely tokens at each position; None for no log-probabilities. echo: begin with the prompt.
    origins: add the origin of tokens to each piece of a stream. prediction: a text that the answer
    is expected to repeat. user: the caller's name of its user, for the log. cache_key: a hint that
    requests with the same key share prefixes. settings: fields of the request that a response of
    this endpoint repeats.
    """

    endpoint: Endpoint
    model: str | None
    prompts: tuple[Prompt, ...]
    options: dict[str, Any]
    n: int = 1
    stream: bool = False
    include_usage: bool = False
    usage_in_events: bool = False
    logprobs: int | None = None
    echo: bool = False
    origins: bool = False
    prediction: str | None = None
    user: str | None = None
    cache_key: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def num_choices(self) -> int:
        """Number of generations."""
        return len(self.prompts) * self.n

    @property
    def choices(self) -> list[dict[str, Any]]:
        """What the options of each choice of a prompt add: with a seed, its index."""
        has_seed = self.options.get("seed") is not None
        return [{"choice": i} if has_seed else {} for i in range(self.n)]

    def generations(self) -> list[tuple[Prompt, dict[str, Any]]]:
        """Prompt and options of every choice, in the order of their indices."""
        choices = [{**self.options, **own} for own in self.choices]
        return [(prompt, options) for prompt in self.prompts for options in choices]
