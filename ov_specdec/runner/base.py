"""`Runner`: a model whose forward passes extend the KV caches of several sequences."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ov_specdec.errors import SessionError
from ov_specdec.logits import Logits

LOGITS_INDICES = "logits_indices"
"""Input that names the rows of logits to compute, [num_rows]: places in the pass, from 0."""

ATTENTION_INDICES = "attention_indices"
"""Input that names the place in the pass of each row that attention gets, [num_attention_rows]."""

KEPT_INDICES = "kept_indices"
"""Input that names those of attention's rows that the pass goes on with, [num_tokens]."""

HiddenStates: TypeAlias = NDArray[np.float32]
"""What layers of a model make of tokens on the way to logits, [num_tokens, hidden_size]."""


FOREIGN = "a sequence of another model was given: each model takes those that it has opened"
"""What a `SessionError` says of a slot that a runner has not opened."""


class Slot(Protocol):
    """Where a model keeps the KV cache of one sequence: what `Runner.open` gives.

    A runner takes its own, and raises `SessionError` for one of another model.
    """

    @property
    def length(self) -> int:
        """Number of tokens that the KV cache holds. Which ones is known to `CachedSequence`."""
        ...


class Span(NamedTuple):
    """What a forward pass appends to one sequence. num_rows: logits wanted, of the last tokens.

    hidden_states: [len(tokens), hidden_size], which the pass fills; None where they are not wanted.
    num_standing: tokens of the sequence, from the first, that will not be rolled back, as draft
    tokens may be; None: all.
    """

    slot: Slot
    tokens: Sequence[int]
    num_rows: int
    hidden_states: HiddenStates | None = None
    num_standing: int | None = None


class ForwardOutput(NamedTuple):
    """What the forward passes that one sequence has waited for came to.

    logits: [num_rows, vocab]; may be overwritten by the next pass. num_tokens: tokens that were
    fed. num_cached: those that were in the cache before. num_sequences: those that the last of the
    passes extended. rollback_seconds: time that it took to forget others. hidden_states: [num_rows,
    hidden_size], of the tokens of those rows; None without readers.
    """

    logits: Logits
    num_tokens: int
    num_cached: int
    num_sequences: int
    rollback_seconds: float
    hidden_states: HiddenStates | None = None


@runtime_checkable
class HiddenStatesReader(Protocol):
    """A drafter that reads the main model's hidden states, as a draft head does.

    The main model has none of tokens that it finds cached. So it takes no more of those than the
    drafter holds too, and the drafter observes all others before it proposes. Where KV caches are
    given up while it does, its proposal is dropped: what it has observed may be lost.
    Source: Li et al. (EAGLE-3, arXiv 2503.01840).
    """

    def match_prefix(self, tokens: Sequence[int]) -> int:
        """How many of these first tokens it holds, and needs no hidden states of.

        Asked where the main model's cache is empty: at first, and after it was given up. A drafter
        with a KV cache of its own asks `CachedSequence.hold`.
        """
        ...

    def observe(self, start: int, tokens: Sequence[int], hidden_states: HiddenStates) -> None:
        """Hidden states [len(tokens), hidden_size] of tokens that stand, from place `start` on.

        They come in order: of a prompt chunk by chunk, of draft tokens once they are accepted. What
        the main model reads again is observed again. The array may be kept.
        """
        ...


class Runner(Protocol):
    """A compiled model, whose forward passes extend several sequences at once."""

    @property
    def max_length(self) -> int:
        """Number of tokens that one sequence can have: the model's context."""
        ...

    @property
    def max_sequences(self) -> int | None:
        """Number of sequences that can be held at a time; None: what the memory allows."""
        ...

    @property
    def border(self) -> int | None:
        """Tokens beyond which a sequence is another one, of the namespace `Beyond`; None: never."""
        ...

    @property
    def max_draft_tokens(self) -> int | None:
        """Draft tokens that a sequence may be fed and rolled back by at present; None: any."""
        ...

    @property
    def forgets_freely(self) -> bool:
        """Whether a rollback takes next to no time, so that passes may be padded with tokens."""
        ...

    @property
    def hidden_size(self) -> int | None:
        """Values of a token's hidden state; None: no pass gives any, and no span may want them."""
        ...

    @property
    def bytes_per_token(self) -> int:
        """Memory of the KV cache that a token takes; 0 where the device manages it."""
        ...

    @property
    def bytes_per_state(self) -> int:
        """Memory of the state of recurrent layers after one token; 0 without such layers."""
        ...

    @property
    def is_invariant(self) -> bool:
        """Whether passes have the form in which a token's logits are the same in any of them."""
        ...

    @property
    def is_proven(self) -> bool:
        """Whether these were seen to be bitwise the same, on this machine."""
        ...

    @property
    def static_shapes(self) -> frozenset[int]:
        """Tokens of passes that take no longer after one of another size; others do."""
        ...

    @property
    def num_free(self) -> int | None:
        """Tokens that there is room for beside those of the sequences at present; None: any."""
        ...

    @property
    def capacity(self) -> int | None:
        """Tokens that all sequences together can have; None: the device manages the memory."""
        ...

    def limit(self, num_tokens: int, num_states: int) -> None:
        """Have all sequences together hold so many tokens at most; before there are any.

        num_states: of recurrent layers, where the model has those.
        """
        ...

    def open(self, namespace: Hashable = None) -> Slot:
        """A new sequence, which is empty. namespace: see `match_prefix`."""
        ...

    def forward(self, spans: Sequence[Span]) -> list[Logits]:
        """One pass: appends each span's tokens to its sequence; logits [num_rows, vocab] of each.

        A row scores the token that follows its own. The arrays may be overwritten by the next pass.
        Raises `SessionError` where a sequence would grow beyond `max_length`, and `CacheFullError`
        where the memory is used up. After an error each sequence holds what it held before, or
        nothing: its `length` says which.
        """
        ...

    def match_prefix(self, slot: Slot, tokens: Sequence[int]) -> int:
        """Hold the first of these tokens that other sequences of the namespace share; how many.

        The cache is empty before.
        """
        ...

    def rollback(self, slot: Slot, length: int) -> None:
        """Forget all but the first `length` tokens. Raises `SessionError` if there are fewer.

        A model whose state is no list of tokens, such as one with recurrent layers, may go back
        further, to the last state that it has kept; its `length` says how far, and the rest is fed
        again.
        """
        ...

    def commit(self, slot: Slot, tokens: Sequence[int], length: int) -> None:
        """The cache holds the first `length` of these tokens, and they will not be rolled back."""
        ...

    def free(self, slot: Slot, tokens: Sequence[int] = ()) -> None:
        """Hold nothing, but leave these first tokens of the cache to sequences of the namespace.

        All that is committed is among them, or they are none: then nothing is left but what others
        share already.
        """
        ...

    def read_kv(self, slot: Slot) -> dict[str, NDArray[Any]]:
        """Copies of the cache's tensors by name, in the layout that the device keeps them in."""
        ...

    def write_kv(self, slot: Slot, tensors: Mapping[str, NDArray[Any]], length: int) -> None:
        """Put what `read_kv` gave for `length` tokens in place of what the cache holds.

        Raises `SessionError` for tensors of another model, or of one compiled in another way.
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


def only_span(spans: Sequence[Span]) -> Span:
    """The span of a runner that extends one sequence in a pass; `SessionError` for several."""
    if len(spans) != 1:
        raise SessionError(f"a pass was asked for over {len(spans)} sequences: this takes one")
    return spans[0]


def check_rows(span: Span) -> None:
    """Refuse a span that wants more rows of logits than it has tokens, or none."""
    if not 1 <= span.num_rows <= len(span.tokens):
        raise SessionError(
            f"a pass over {len(span.tokens)} tokens cannot give {span.num_rows} rows of logits"
        )
