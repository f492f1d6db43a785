"""What sequences are decoded from, a text or a recording for an encoder; it keys all reuse."""

import hashlib
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Source:
    """What a sequence is decoded from. As the namespace of `Runner.open` it keys all reuse.

    values: what an encoder reads: ids [1, tokens] of a text, or features [1, bins, frames] of a
    recording. namespace: whose source it is. Two are equal where both are: their sequences begin
    in the same way, so that they may share what is cached.
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
        """Of a text; none of a recording."""
        is_text = np.issubdtype(self.values.dtype, np.integer)
        return self.values[0].tolist() if is_text else []
