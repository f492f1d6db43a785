"""The options of a generation, under the names of transformers.GenerationConfig."""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from ov_specdec.checks import require_choice, require_int
from ov_specdec.errors import OptionError
from ov_specdec.policy import MAX_DRAFT_LENGTH, ConstantLength, HeuristicLength, Policy

Schedule = Literal["heuristic", "constant"]


@dataclass(frozen=True)
class GenerationOptions:
    """Options of `generate` and `stream`. Checked when made; `OptionError` names what is wrong.

    max_new_tokens: most tokens to generate; fewer where the model's context ends.
    num_assistant_tokens: candidates per round; "auto" starts at 5; 0 is plain decoding.
    num_assistant_tokens_schedule: "constant" keeps that number, "heuristic" adapts it; None takes
        "heuristic" for "auto" and "constant" for a number.
    prompt_lookup_num_tokens: most candidates per match of drafter "prompt-lookup"; None: no limit
        of its own.
    max_matching_ngram_size: longest n-gram that drafter "prompt-lookup" looks for; None takes 3.
    eos_token_id: ids that end the text; None takes the model's own.
    ignore_eos: go on after an end-of-sequence token.
    stop_strings: texts that end the output; the output stops short of them.
    apply_chat_template: put a prompt text into the model's chat template, where it has one.
    """

    max_new_tokens: int = 128
    num_assistant_tokens: int | Literal["auto"] = "auto"
    num_assistant_tokens_schedule: Schedule | None = None
    prompt_lookup_num_tokens: int | None = None
    max_matching_ngram_size: int | None = None
    eos_token_id: int | Sequence[int] | None = None
    ignore_eos: bool = False
    stop_strings: str | Sequence[str] = ()
    apply_chat_template: bool = True

    def __post_init__(self) -> None:
        require_int("max_new_tokens", self.max_new_tokens, low=1)
        if self.num_assistant_tokens != "auto":
            require_int(
                "num_assistant_tokens", self.num_assistant_tokens, low=0, high=MAX_DRAFT_LENGTH
            )
        schedule = self.num_assistant_tokens_schedule
        if schedule is not None:
            require_choice("num_assistant_tokens_schedule", schedule, get_args(Schedule))
        if schedule == "constant" and self.num_assistant_tokens == "auto":
            raise OptionError(
                "num_assistant_tokens_schedule='constant' needs a number in num_assistant_tokens"
            )
        for name in ("prompt_lookup_num_tokens", "max_matching_ngram_size"):
            if getattr(self, name) is not None:
                require_int(name, getattr(self, name), low=1)
        for token in self.eos_token_ids or ():
            require_int("eos_token_id", token, low=0)
        for stop in self.stops:
            if not isinstance(stop, str) or not stop:
                raise OptionError(f"stop_strings={self.stop_strings!r} must be texts, none empty")

    @classmethod
    def from_kwargs(cls, options: Mapping[str, Any]) -> "GenerationOptions":
        """Options by name; `OptionError` for a name that does not exist."""
        known = [field.name for field in fields(cls)]
        for name in options:
            if name not in known:
                close = difflib.get_close_matches(name, known, n=1)
                hint = f"did you mean {close[0]}?" if close else f"there are: {', '.join(known)}"
                raise OptionError(f"unknown option '{name}': {hint}")
        return cls(**options)

    @property
    def stops(self) -> tuple[str, ...]:
        """stop_strings as a tuple."""
        return _as_tuple(self.stop_strings)

    @property
    def eos_token_ids(self) -> frozenset[int] | None:
        """eos_token_id as a set; None where the model's own apply."""
        if self.ignore_eos:
            return frozenset()
        return None if self.eos_token_id is None else frozenset(_as_tuple(self.eos_token_id))

    def policy(self) -> Policy:
        """A new policy for the draft length."""
        if self.num_assistant_tokens == "auto":
            return HeuristicLength()
        if self.num_assistant_tokens_schedule == "heuristic" and self.num_assistant_tokens > 0:
            return HeuristicLength(self.num_assistant_tokens)
        return ConstantLength(self.num_assistant_tokens)


def _as_tuple(value: Any) -> tuple[Any, ...]:
    """One value or several, as a tuple."""
    several = isinstance(value, Iterable) and not isinstance(value, str)
    return tuple(value) if several else (value,)
