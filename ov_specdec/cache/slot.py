"""`Slot`, the KV cache of one sequence; its namespace, within which prefixes are shared."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from itertools import compress, count
from operator import ne
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Slot(ABC):
    """The KV cache of one sequence in a model, from `Runner.open`; passes extend it.

    owner: identifies the model. namespace: within which prefixes are shared. has_long_rope: whether
    the sequence is beyond the original context length: see `LongRopeNamespace`.
    """

    def __init__(self, owner: object, namespace: Hashable = None) -> None:
        self.owner = owner
        self.namespace = namespace
        self.has_long_rope = isinstance(namespace, LongRopeNamespace)

    @property
    @abstractmethod
    def length(self) -> int:
        """Number of tokens in the KV cache. `CachedSequence` has their ids."""

    def num_kept(self, tokens: Sequence[int]) -> int:  # noqa: ARG002
        """How many of these tokens `match_prefix` would find, about; 0 where only it can tell."""
        return 0

    @abstractmethod
    def match_prefix(self, tokens: Sequence[int]) -> int:
        """Reuse the cached prefix of these tokens in the namespace. Returns its length.

        The sequence must be empty before.
        """

    @abstractmethod
    def rollback(self, length: int) -> None:
        """Drop all but the first `length` tokens, of which there are as many or more.

        A model with recurrent layers may roll back further, to its last kept state; the length then
        says how far, and the rest is recomputed.
        """

    def commit(self, tokens: Sequence[int], length: int) -> None:  # noqa: B027
        """Share the first `length` tokens of the cache, which will not be rolled back."""

    @abstractmethod
    def free(self, tokens: Sequence[int] = ()) -> None:
        """Empty the sequence, and keep these tokens as a cached prefix of the namespace.

        They include all committed tokens, or are empty: then only already shared tokens stay.
        """


@dataclass(frozen=True)
class LongRopeNamespace:
    """The namespace of sequences beyond the original context length (LongRoPE).

    Such a sequence uses the long rotary factors from its first token on, others the short ones.
    When a sequence exceeds that length, its KV cache is recomputed. Separate namespaces keep caches
    with one kind of factors from being found with the other; those up to it have `namespace`.
    Source: Ding et al. (arXiv 2402.13753), as in Phi-3 and its successors.
    """

    namespace: Hashable = None


@dataclass(frozen=True)
class EncoderInput:
    """The source of sequences of an encoder-decoder model, which is their namespace.

    values: ids [1, tokens] of a text, or features [1, bins, frames] of a recording. namespace: of
    its tenant. Inputs with equal values and namespace are equal, and share caches.
    """

    values: NDArray[Any] = field(compare=False, repr=False)
    namespace: Hashable = None
    digest: bytes = field(init=False)

    def __post_init__(self) -> None:
        described = f"{self.values.dtype} {self.values.shape}".encode()
        digest = hashlib.sha256(described + self.values.tobytes())
        object.__setattr__(self, "digest", digest.digest())

    @property
    def ids(self) -> list[int]:
        """The ids of a text; empty for a recording."""
        is_text = np.issubdtype(self.values.dtype, np.integer)
        return self.values[0].tolist() if is_text else []


def common_prefix(tokens: Sequence[int], others: Sequence[int]) -> int:
    """The length of the common prefix of two sequences."""
    shorter = min(len(tokens), len(others))
    if tokens[:shorter] == others[:shorter]:
        return shorter
    return next(compress(count(), map(ne, tokens, others)), shorter)
