"""One generation of one method, as it is asked for and as measured."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Ask:
    """One generation; greedy at temperature 0.

    ends: an end-of-sequence token ends the output. json_schema: what it fits; "" for any text.
    """

    prompt_ids: Sequence[int]
    max_new_tokens: int
    temperature: float = 0.0
    ends: bool = False
    json_schema: str = ""


@dataclass(frozen=True)
class Measurement:
    """What one generation took.

    token_ids: the output. seconds: from the call to its return. first_token_seconds: from the call
    to the first token. main_passes: passes of the main model, the prefill among them. drafted,
    accepted: draft tokens. The last three are None where a method does not tell.
    """

    token_ids: list[int]
    seconds: float
    first_token_seconds: float
    main_passes: int | None = None
    drafted: int | None = None
    accepted: int | None = None

    @property
    def speed(self) -> float:
        """Tokens per second from the call to its return: the first token counts."""
        return len(self.token_ids) / self.seconds


class Runner(Protocol):
    """A program with its models loaded, ready to generate."""

    def run(self, ask: Ask, length: int | None) -> Measurement:
        """Continue a prompt. length: draft tokens a round; None: as the program decides."""
        ...
