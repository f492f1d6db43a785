"""What the engine needs of a model: one sequence's KV cache, and passes that extend it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from numpy.typing import NDArray

from ov_specdec.errors import SessionError
from ov_specdec.logits import Logits

ROWS = "row_indices"
"""Input that names the rows of logits to compute, [num_rows]: places in the pass, from 0."""


@dataclass(frozen=True)
class Span:
    """What a pass is to append to one sequence. num_rows: logits wanted, of the last tokens."""

    session: "Session"
    tokens: Sequence[int]
    num_rows: int


class Session(Protocol):
    """A compiled model together with the KV cache of one sequence.

    It knows how many tokens its cache holds, not which: see `CachedSequence`.
    """

    @property
    def length(self) -> int:
        """Number of tokens that the KV cache holds."""
        ...

    @property
    def max_length(self) -> int:
        """Number of tokens that the KV cache can hold: the model's context."""
        ...

    def forward(self, tokens: Sequence[int], num_rows: int | None = None) -> Logits:
        """Append `tokens` (at least one) to the cache and return logits [num_rows, vocab].

        num_rows: rows are computed for the last so many tokens, from 1 to len(tokens); None: for
        all. A row scores the token that follows its own. The array may be overwritten by the next
        pass. Raises `SessionError` when the cache has no room. After an error the cache holds
        what it held before, or nothing: `length` says which.
        """
        ...

    def rollback(self, length: int) -> None:
        """Forget all but the first `length` tokens. Raises `SessionError` if there are fewer."""
        ...

    def reset(self) -> None:
        """Forget everything, what sequences before have left too."""
        ...

    def adopt(self, tokens: Sequence[int]) -> int:
        """Hold the first of these tokens that a sequence before has left; returns how many.

        The cache is empty before.
        """
        ...

    def settle(self, tokens: Sequence[int], length: int) -> None:
        """The cache holds the first `length` of these tokens, and they will not be rolled back."""
        ...

    def leave(self, tokens: Sequence[int]) -> None:
        """Forget everything, but leave these first tokens of the cache to sequences to come."""
        ...

    def read_kv(self) -> dict[str, NDArray[Any]]:
        """Copies of the cache's tensors by name, in the layout that the device keeps them in."""
        ...

    def write_kv(self, tensors: Mapping[str, NDArray[Any]], length: int) -> None:
        """Put what `read_kv` gave for `length` tokens in place of what the cache holds.

        Raises `SessionError` for tensors of another model, or of one compiled in another way.
        """
        ...


def check_rollback(current: int, length: int) -> None:
    """Refuse a rollback target outside 0..current."""
    if not 0 <= length <= current:
        raise SessionError(f"cannot roll back to {length}: the KV cache holds {current} tokens")


def check_tensors(current: Mapping[str, NDArray[Any]], tensors: Mapping[str, NDArray[Any]]) -> None:
    """Refuse tensors that differ from those of the cache in name, type or shape."""
    for name in current.keys() | tensors.keys():
        if (
            name not in current
            or name not in tensors
            or current[name].dtype != tensors[name].dtype
            or current[name].shape != tensors[name].shape
        ):
            raise SessionError(
                f"'{name}' does not fit this KV cache: it is of another model, or of one that was "
                "compiled in another way"
            )


def check_room(current: int, num_tokens: int, max_length: int) -> None:
    """Refuse a pass over no tokens, or over more tokens than the cache has room for."""
    if num_tokens < 1:
        raise SessionError("a forward pass needs at least one token")
    if current + num_tokens > max_length:
        raise SessionError(
            f"the KV cache holds {current} of {max_length} tokens: no room for {num_tokens} more"
        )


def count_rows(num_tokens: int, num_rows: int | None) -> int:
    """How many rows of logits a pass gives; refuses more of them than tokens, or none."""
    if num_rows is None:
        return num_tokens
    if not 1 <= num_rows <= num_tokens:
        raise SessionError(f"a pass over {num_tokens} tokens cannot give {num_rows} rows of logits")
    return num_rows
