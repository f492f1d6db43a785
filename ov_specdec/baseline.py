"""Plain decoding as the baseline: its options, and the comparison of outputs."""

from collections.abc import Mapping, Sequence
from typing import Any


def plain_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The same options of a generation, for plain decoding."""
    return {**options, "num_assistant_tokens": 0, "num_assistant_tokens_schedule": None}


def common_prefix(tokens: Sequence[int], others: Sequence[int]) -> int:
    """The length of the common prefix of two outputs."""
    shorter = min(len(tokens), len(others))
    if tokens[:shorter] == others[:shorter]:
        return shorter
    pairs = enumerate(zip(tokens, others, strict=False))
    return next((place for place, (a, b) in pairs if a != b), shorter)
