"""One generation of one method, as measured; every figure of a report is derived from these."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from ov_specdec.stats import RoundStats


@dataclass(frozen=True)
class Measurement:
    """What one generation took.

    prompt_tokens: tokens of the prompt. token_ids: the output. seconds: from the call to its
    return. first_token_seconds: from the call to the first token. The figures below are None where
    a method does not draft or does not tell. main_passes: passes of the main model, the prefill
    among them. main_seconds, draft_seconds: time in passes of the two models; of the main without
    the prefill. rounds: the record of each round, where it is this project's own loop.
    """

    prompt_tokens: int
    token_ids: list[int]
    seconds: float
    first_token_seconds: float
    main_passes: int | None = None
    drafted: int | None = None
    accepted: int | None = None
    main_seconds: float | None = None
    draft_seconds: float | None = None
    rounds: tuple[RoundStats, ...] = ()

    @property
    def generated_tokens(self) -> int:
        """Tokens of the output."""
        return len(self.token_ids)

    @property
    def tokens_per_second(self) -> float:
        """Output tokens per second, prefill included."""
        return self.generated_tokens / self.seconds

    @property
    def time_per_output_token(self) -> float | None:
        """Seconds per token after the first; None where there is no second."""
        following = self.generated_tokens - 1
        return (self.seconds - self.first_token_seconds) / following if following > 0 else None

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted draft tokens per drafted one; None where nothing was drafted."""
        return self.accepted / self.drafted if self.drafted and self.accepted is not None else None

    @property
    def tokens_per_main_pass(self) -> float | None:
        """Output tokens per pass of the main model."""
        return self.generated_tokens / self.main_passes if self.main_passes else None

    def as_dict(self) -> dict[str, Any]:
        """For JSON; `from_dict` reads it."""
        return asdict(self)

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> "Measurement":
        """What `as_dict` wrote."""
        rounds = tuple(
            RoundStats(**{name: _as_tuple(value) for name, value in round_.items()})
            for round_ in content["rounds"]
        )
        return cls(**{**content, "rounds": rounds})


def _as_tuple(value: Any) -> Any:
    """What JSON has made a list of."""
    return tuple(value) if isinstance(value, list) else value


class Runner(Protocol):
    """A method with its models loaded, ready to generate."""

    def run(self, prompt_ids: Sequence[int], max_new_tokens: int) -> Measurement:
        """Continue a prompt greedily by `max_new_tokens`, past any end-of-sequence token."""
        ...
