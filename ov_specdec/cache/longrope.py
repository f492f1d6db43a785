"""LongRoPE: sequences longer than a border use other rotary factors.

Source: Ding et al. (LongRoPE, arXiv 2402.13753), as in Phi-3 and its successors: a sequence up to
the border uses the short factors, a longer one the long factors, from its first token on. When a
sequence crosses the border, its KV cache is recomputed.
"""

from collections.abc import Hashable
from dataclasses import dataclass

LONG = "takes_long_factors"
"""Input that selects the factors of a pass, []: all its sequences are on one side of the border."""


@dataclass(frozen=True)
class Beyond:
    """The namespace of sequences beyond the border; those up to it have `namespace` itself.

    Separate namespaces keep caches of one side from being found on the other.
    """

    namespace: Hashable = None
