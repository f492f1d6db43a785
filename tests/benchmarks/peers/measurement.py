"""One generation of one method, as measured."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol


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
    def speed(self) -> float | None:
        """Tokens per second after the first token; None where there is no second."""
        following = len(self.token_ids) - 1
        return following / (self.seconds - self.first_token_seconds) if following > 0 else None

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


class Runner(Protocol):
    """A method with its models loaded, ready to generate."""

    def run(self, prompt_ids: Sequence[int], max_new_tokens: int) -> Measurement:
        """Continue a prompt greedily by `max_new_tokens`, past any end-of-sequence token."""
        ...
