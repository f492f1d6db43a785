"""`Runner`: a model whose forward passes extend the KV caches of several sequences."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ov_specdec.errors import SessionError
from ov_specdec.logits import Logits

LOGITS_INDICES = "logits_indices"
"""Input with the indices of the rows of logits to compute, [num_rows]."""

ATTENTION_INDICES = "attention_indices"
"""Input with the index in the pass of each row of attention, [num_attention_rows]."""

KEPT_INDICES = "kept_indices"
"""Input with the indices of attention's rows that the pass keeps, [num_tokens]."""

HiddenStates: TypeAlias = NDArray[np.float32]
"""Hidden states of tokens before the logits, [num_tokens, hidden_size]."""


FOREIGN = "the sequence belongs to another model: a model takes only sequences that it opened"
"""The message of a `SessionError` for a slot of another runner."""


class Slot(Protocol):
    """The KV cache of one sequence in a model, from `Runner.open`.

    A runner takes only its own slots, and raises `SessionError` for others.
    """

    @property
    def length(self) -> int:
        """Number of tokens in the KV cache. `CachedSequence` has their ids."""
        ...


class Span(NamedTuple):
    """Tokens that a forward pass appends to one sequence. num_rows: of logits, of the last tokens.

    hidden_states: [len(tokens), hidden_size], which the pass fills; None: not requested.
    num_standing: length of the sequence that will not be rolled back, without draft tokens; None:
    all.
    """

    slot: Slot
    tokens: Sequence[int]
    num_rows: int
    hidden_states: HiddenStates | None = None
    num_standing: int | None = None


class ForwardOutput(NamedTuple):
    """The result of the forward passes for one sequence.

    logits: [num_rows, vocab]; the next pass may overwrite them. num_tokens: fed tokens. num_cached:
    tokens in the cache before. num_sequences: in the last of the passes. rollback_seconds: time of
    the rollback before. hidden_states: [num_rows, hidden_size], of those rows; None without
    readers.
    """

    logits: Logits
    num_tokens: int
    num_cached: int
    num_sequences: int
    rollback_seconds: float
    hidden_states: HiddenStates | None = None


@runtime_checkable
class HiddenStatesReader(Protocol):
    """A drafter that reads the main model's hidden states, such as a draft head.

    Cached tokens have no hidden states. So the main model reuses only a prefix that the drafter
    holds too, and the drafter observes all other tokens before it proposes. If KV caches are freed
    meanwhile, its proposal is dropped, because its observations may be lost.
    Source: Li et al. (EAGLE-3, arXiv 2503.01840).
    """

    def match_prefix(self, tokens: Sequence[int]) -> int:
        """The length of the prefix of these tokens for which it needs no hidden states.

        Called while the main model's cache is empty: at the start, and after it was freed. A
        drafter with its own KV cache calls `CachedSequence.hold`.
        """
        ...

    def observe(self, start: int, tokens: Sequence[int], hidden_states: HiddenStates) -> None:
        """Take hidden states [len(tokens), hidden_size] of accepted tokens from index `start`.

        They come in order: of a prompt by chunks, of draft tokens once accepted. Recomputed tokens
        are observed again. The array may be kept.
        """
        ...


class Runner(Protocol):
    """A compiled model, whose forward passes extend several sequences at once."""

    @property
    def max_length(self) -> int:
        """Maximum tokens of a sequence: the model's context."""
        ...

    @property
    def max_sequences(self) -> int | None:
        """Maximum concurrent sequences; None: what the memory allows."""
        ...

    @property
    def border(self) -> int | None:
        """Length above which a sequence has the namespace `Beyond` (LongRoPE); None: no border."""
        ...

    @property
    def max_draft_tokens(self) -> int | None:
        """Current maximum of draft tokens that a sequence may feed and roll back; None: any."""
        ...

    @property
    def hidden_size(self) -> int | None:
        """Size of a token's hidden state; None: passes give none, so spans cannot request them."""
        ...

    @property
    def bytes_per_token(self) -> int:
        """Bytes of KV cache for each token; 0 if the device manages it."""
        ...

    @property
    def bytes_per_state(self) -> int:
        """Bytes of one state of the recurrent layers; 0 without such layers."""
        ...

    @property
    def is_invariant(self) -> bool:
        """Whether passes have the batch-invariant form."""
        ...

    @property
    def is_proven(self) -> bool:
        """Whether a check on this machine found them batch-invariant."""
        ...

    @property
    def static_shapes(self) -> frozenset[int]:
        """Sizes of passes without a cost of change."""
        ...

    @property
    def num_free(self) -> int | None:
        """Free room in tokens, besides those of current sequences; None: unlimited."""
        ...

    @property
    def capacity(self) -> int | None:
        """Maximum tokens of all sequences together; None: the device manages the memory."""
        ...

    def limit(self, num_tokens: int, num_states: int) -> None:
        """Set the maximum tokens of all sequences together, before there are any.

        num_states: of recurrent layers, if the model has some.
        """
        ...

    def open(self, namespace: Hashable = None) -> Slot:
        """Open a new, empty sequence. namespace: see `match_prefix`."""
        ...

    def forward(self, spans: Sequence[Span]) -> list[Logits]:
        """One pass: appends each span's tokens to its sequence; logits [num_rows, vocab] of each.

        A row scores the token after its own. The next pass may overwrite the arrays. Raises
        `SessionError` if a sequence would exceed `max_length`, and `CacheFullError` if the memory
        is used up. After an error each sequence is unchanged or empty, as its `length` says.
        """
        ...

    def match_prefix(self, slot: Slot, tokens: Sequence[int]) -> int:
        """Reuse the cached prefix of these tokens in the namespace. Returns its length.

        The sequence must be empty before.
        """
        ...

    def rollback(self, slot: Slot, length: int) -> None:
        """Drop all but the first `length` tokens. Raises `SessionError` if there are fewer.

        A model with recurrent layers may roll back further, to its last kept state; its `length`
        says how far, and the rest is recomputed.
        """
        ...

    def commit(self, slot: Slot, tokens: Sequence[int], length: int) -> None:
        """Share the first `length` tokens of the cache, which will not be rolled back."""
        ...

    def free(self, slot: Slot, tokens: Sequence[int] = ()) -> None:
        """Empty the sequence, and keep these tokens as a cached prefix of the namespace.

        They include all committed tokens, or are empty: then only already shared tokens stay.
        """
        ...

    def read_kv(self, slot: Slot) -> dict[str, NDArray[Any]]:
        """Copies of the cache's tensors by name, in the device's layout."""
        ...

    def write_kv(self, slot: Slot, tensors: Mapping[str, NDArray[Any]], length: int) -> None:
        """Replace the cache by the result of `read_kv` for `length` tokens.

        Raises `SessionError` for tensors of another model or compilation.
        """
        ...


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
                f"'{name}' does not fit this KV cache: it belongs to another model or compilation"
            )


def check_room(current: int, num_tokens: int, max_length: int) -> None:
    """Refuse a pass over no tokens, or over more tokens than fit in the cache."""
    if num_tokens < 1:
        raise SessionError("a forward pass needs at least one token")
    if current + num_tokens > max_length:
        raise SessionError(
            f"the KV cache holds {current} of {max_length} tokens: no room for {num_tokens} more"
        )


def only_span(spans: Sequence[Span]) -> Span:
    """The span of a runner that extends one sequence in a pass; `SessionError` for several."""
    if len(spans) != 1:
        raise SessionError(f"a pass over {len(spans)} sequences: this model takes one at a time")
    return spans[0]


def check_rows(span: Span) -> None:
    """Refuse a span with more rows of logits than tokens, or with none."""
    if not 1 <= span.num_rows <= len(span.tokens):
        raise SessionError(
            f"a pass over {len(span.tokens)} tokens cannot give {span.num_rows} rows of logits"
        )
