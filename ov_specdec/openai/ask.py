"""`Ask`: a parsed request."""

from dataclasses import dataclass, field
from typing import Any

from ov_specdec.options.generation import GenerationOptions
from ov_specdec.options.model import Endpoint
from ov_specdec.text.prompt import Prompt


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
