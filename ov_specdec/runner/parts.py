"""Splits spans for passes over a bounded number of tokens."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ov_specdec.runner.base import Span


class Part(NamedTuple):
    """Some of the tokens of a span, from index `begin`. of: the span's index."""

    of: int
    begin: int
    span: Span


def divide(parts: Sequence[Part], most: int | None) -> Iterator[list[Part]]:
    """Divide spans into passes over at most `most` tokens each, in order. most: None for any."""
    taken: list[Part] = []
    room = most or sum(len(part.span.tokens) for part in parts)
    most = room
    for of, _, span in parts:
        begin, num_tokens = 0, len(span.tokens)
        while begin < num_tokens:
            end = min(begin + room, num_tokens)
            num_rows = max(end - max(num_tokens - span.num_rows, begin), 0)
            tokens = span.tokens[begin:end]
            taken.append(Part(of, begin, span._replace(tokens=tokens, num_rows=num_rows)))
            room -= end - begin
            begin = end
            if room == 0:
                yield taken
                taken, room = [], most
    if taken:
        yield taken
