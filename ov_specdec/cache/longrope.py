"""LongRoPE: sequences beyond a border are computed with other factors of their positions.

Source: Ding et al. (LongRoPE, arXiv 2402.13753), as Phi-3 and its successors have it: a sequence of
at most so many tokens takes the short factors, a longer one the long factors, from its first token
on. So when it crosses the border, what is cached of it has to be computed again.
"""

from collections.abc import Hashable
from dataclasses import dataclass

LONG = "takes_long_factors"
"""Input that says with which factors a pass computes, []: a pass is over sequences of one side."""


@dataclass(frozen=True)
class Beyond:
    """The namespace of sequences beyond the border; those up to it have `namespace` itself.

    It is all that tells them apart, so that nothing which is kept of one side is found by the
    other.
    """

    namespace: Hashable = None
