"""`Source`: the encoder input of sequences, a text or a recording, and the key of all reuse."""

import hashlib
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Source:
    """The encoder input of sequences, which is their namespace in `Runner.open`.

    values: ids [1, tokens] of a text, or features [1, bins, frames] of a recording. namespace: of
    its tenant. Sources with equal values and namespace are equal, and share caches.
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
