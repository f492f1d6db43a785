"""Bookkeeping of KV caches: slots, blocks, states and prefixes. No tensors here."""

from collections.abc import Sequence


def common_prefix(tokens: Sequence[int], others: Sequence[int]) -> int:
    """The length of the common prefix of two sequences."""
    shorter = min(len(tokens), len(others))
    if tokens[:shorter] == others[:shorter]:
        return shorter
    pairs = enumerate(zip(tokens, others, strict=False))
    return next((index for index, (a, b) in pairs if a != b), shorter)
