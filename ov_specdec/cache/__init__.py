"""Bookkeeping of KV caches: slots, blocks, states and prefixes. No tensors here."""

from collections.abc import Sequence
from itertools import compress, count
from operator import ne


def common_prefix(tokens: Sequence[int], others: Sequence[int]) -> int:
    """The length of the common prefix of two sequences."""
    shorter = min(len(tokens), len(others))
    if tokens[:shorter] == others[:shorter]:
        return shorter
    return next(compress(count(), map(ne, tokens, others)), shorter)
