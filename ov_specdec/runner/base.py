"""`Runner`: a model whose forward passes extend the KV caches of several sequences."""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ov_specdec.cache.slot import Slot
from ov_specdec.errors import SessionError
from ov_specdec.sampling.logits import Logits

LOGITS_INDICES = "logits_indices"
"""Input with the indices of the rows of logits to compute, [num_rows]."""

LONG = "takes_long_factors"
"""Input that selects the rotary factors of a pass (LongRoPE), []."""

FEATURES, STATES = "hidden_states", "last_hidden_state"
"""Input of the hidden states that a draft model reads, and output of those that a model gives."""

HiddenStates: TypeAlias = NDArray[np.float32]
"""Hidden states of tokens before the logits, [num_tokens, hidden_size]."""

S = TypeVar("S", bound=Slot)


class Span(NamedTuple):
    """Tokens that a forward pass appends to one sequence. num_rows: of logits, of the last tokens.

    num_generated: last tokens that are not of the prompt, such as draft tokens. hidden_states:
    [len(tokens), hidden_size], which the pass fills; None: not requested. features: hidden states
    of the main model that it reads, [len(tokens), feature_size]; None: zeros.
    """

    slot: Slot
    tokens: Sequence[int]
    num_rows: int
    num_generated: int = 0
    hidden_states: HiddenStates | None = None
    features: HiddenStates | None = None


class ForwardOutput(NamedTuple):
    """The result of the forward passes for one sequence.

    logits: [num_rows, vocab]; the next pass may overwrite them. num_tokens: fed tokens. num_cached:
    tokens in the cache before. num_passes: that fed them. num_sequences: in the last of these.
    rollback_seconds: time of the rollback before.
    """

    logits: Logits
    num_tokens: int
    num_cached: int
    num_passes: int
    num_sequences: int
    rollback_seconds: float


@runtime_checkable
class HiddenStatesReader(Protocol):
    """A drafter that reads the main model's hidden states, such as a draft head.

    Cached tokens have no hidden states. The drafter says how many of them it can do without, and
    observes all other tokens before it proposes. If KV caches are freed meanwhile, its proposal is
    dropped, because its observations may be lost.
    Source: Li et al. (EAGLE-3, arXiv 2503.01840).
    """

    def match_prefix(self, tokens: Sequence[int]) -> int:
        """The length of the prefix of these tokens for which it needs no hidden states.

        tokens: those that the main model has cached, at the start and after its cache was freed. It
        reads the others again. A drafter with its own KV cache calls `CachedSequence.hold`.
        """

    def observe(self, start: int, tokens: Sequence[int], hidden_states: HiddenStates) -> None:
        """Take hidden states [len(tokens), hidden_size] of accepted tokens from index `start`.

        They come in order: of a prompt by chunks, of draft tokens once accepted. Recomputed tokens
        are observed again. The array may be kept.
        """


class Runner(ABC):
    """A compiled model, whose forward passes extend several sequences at once.

    It takes only slots that it opened, and raises `SessionError` for others.

    max_length: maximum tokens of a sequence, the model's context. max_sequences: maximum concurrent
    sequences; None: what the memory allows. original_context: length above which a sequence has the
    namespace `LongRopeNamespace`; None: no such length. spare: holds the rows that pad a
    pass, and never any token; None: passes are not padded. hidden_size: of a token's
    hidden state; None: passes give none. feature_size: of a hidden state that it reads with each
    token; None: it reads none. mask_token: stands for tokens not drafted yet, if one pass
    of the model drafts several; None: it drafts one. is_invariant: whether passes have the
    batch-invariant form. separates_generated: whether KV entries of generated tokens have other
    bits than those of a prompt, of which a pass then has two or more, or none. is_verified: whether
    a check on this machine found passes batch-invariant. max_pass_tokens: maximum tokens of a pass;
    larger ones are split. None: any number. capacity: maximum tokens of all sequences together;
    None: the device manages the memory. bytes_per_token: of KV cache; 0 if the device manages it.
    bytes_per_state: of one state of the recurrent layers; 0 without such layers.
    """

    max_length: int
    max_sequences: int | None = None
    original_context: int | None = None
    spare: Slot | None = None
    hidden_size: int | None = None
    feature_size: int | None = None
    mask_token: int | None = None
    is_invariant: bool = False
    separates_generated: bool = False
    is_verified: bool = False
    max_pass_tokens: int | None = None
    capacity: int | None = None
    bytes_per_token: int = 0
    bytes_per_state: int = 0

    @property
    def max_draft_tokens(self) -> int | None:
        """Current maximum of draft tokens that a sequence may feed and roll back; None: any."""
        return None

    @property
    def static_shapes(self) -> frozenset[int]:
        """Sizes of passes without a cost of change."""
        return frozenset()

    def padding(self, num_tokens: int, planned: int = 0) -> list[Span]:
        """Spare rows beside so many tokens, up to the planned size of the pass, if there is one.

        Else they reach a static shape if one is near.
        """
        if self.spare is None:
            return []
        near = [size for size in self.static_shapes if num_tokens <= size <= 2 * num_tokens]
        size = planned or min(near, default=0)
        num_rows = min(size, self.max_pass_tokens or size) - num_tokens
        return [Span(self.spare, [0] * num_rows, 0, num_rows)] if num_rows > 0 else []

    @property
    def num_free(self) -> int | None:
        """Free room in tokens, besides those of current sequences; None: unlimited."""
        return None

    def limit(self, num_tokens: int, num_states: int = 0) -> None:  # noqa: B027
        """Set the maximum tokens of all sequences together, before there are any.

        num_states: of recurrent layers, if the model has some. Without a `capacity`: does nothing.
        """

    @abstractmethod
    def open(self, namespace: Hashable = None) -> Slot:
        """Open a new, empty sequence. namespace: see `Slot.match_prefix`."""

    @abstractmethod
    def forward(self, spans: Sequence[Span]) -> list[Logits]:
        """One pass: appends each span's tokens to its sequence; logits [num_rows, vocab] of each.

        A row scores the token after its own. The next pass may overwrite the arrays. Raises
        `SessionError` if a sequence would exceed `max_length`, and `CacheFullError` if the memory
        is used up. After an error each sequence is unchanged or empty, as its `length` says.
        """

    def read_kv(self, slot: Slot) -> dict[str, NDArray[Any]]:  # noqa: ARG002
        """Copies of the cache's tensors by name, in the device's layout.

        Raises `SessionError` for models without a paged KV cache, or with recurrent states.
        """
        raise SessionError("the KV cache of this kind of model cannot be saved to a file")

    def write_kv(self, slot: Slot, tensors: Mapping[str, NDArray[Any]], length: int) -> None:  # noqa: ARG002
        """Replace the cache by the result of `read_kv` for `length` tokens.

        Raises `SessionError` as `read_kv` does, and if they exceed `max_length`.
        """
        self.read_kv(slot)

    def _slots_of(self, spans: Sequence[Span], kind: type[S], owner: object) -> list[S]:
        """Their slots in the runner's own form, with room for them; else `SessionError`."""
        slots = list[S]()
        for span in spans:
            slots.append(require_own(span.slot, kind, owner))
            check_room(slots[-1].length, len(span.tokens), self.max_length)
        return slots


def require_own(slot: Slot, kind: type[S], owner: object) -> S:
    """A slot in a runner's own form; `SessionError` for one of another model."""
    if not isinstance(slot, kind) or slot.owner is not owner:
        raise SessionError(
            "the sequence belongs to another model: a model takes only sequences that it opened"
        )
    return slot


def state_sizes(compiled: Any) -> tuple[int | None, int | None]:
    """The widths of the hidden states that a compiled model gives and reads; None for neither."""
    ports = {name: port for port in (*compiled.inputs, *compiled.outputs) for name in port.names}
    found = (ports.get(name) for name in (STATES, FEATURES))
    sizes = [None if port is None else int(port.partial_shape[-1].get_length()) for port in found]
    return sizes[0], sizes[1]


def check_room(current: int, num_tokens: int, max_length: int) -> None:
    """Refuse more tokens than fit in the cache."""
    if current + num_tokens > max_length:
        raise SessionError(
            f"the KV cache holds {current} of {max_length} tokens: no room for {num_tokens} more"
        )
