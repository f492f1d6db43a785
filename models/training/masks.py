"""Masks in the rows that a parallel draft learns from (PARD, arXiv:2504.18583).

Such a draft is fed the text and then masks, and gives the next tokens in one pass: the row of the
last token the first, that of mask j the one j further on. A row of training holds the text once,
and chains of masks behind many of its tokens, each of which sees the text up to its token and the
chain before it. Deeper masks are dropped at random: their share falls by KEPT from one to the next.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

MASKS = 7  # the longest chain
KEPT = 0.7


@dataclass(frozen=True)
class Layout:
    """Positions [n] of tokens and masks in their text, and depths [n]: j of mask j, 0 of tokens."""

    positions: Tensor
    depths: Tensor

    @classmethod
    def drawn(cls, length: int, seed: int) -> "Layout":
        """A text of ``length`` tokens with chains at random."""
        order = torch.randperm(length - MASKS, generator=torch.Generator().manual_seed(seed))
        anchors = [order[: round(len(order) * KEPT**depth)] for depth in range(1, MASKS + 1)]
        return cls.chained(length, anchors)

    @classmethod
    def chained(cls, length: int, anchors: list[Tensor]) -> "Layout":
        """A text of ``length`` tokens, with mask j behind those at ``anchors[j - 1]``."""
        shifted = [at + depth for depth, at in enumerate(anchors, 1)]
        depths = [torch.full_like(at, depth) for depth, at in enumerate(anchors, 1)]
        text = torch.arange(length)
        return cls(torch.cat([text, *shifted]), torch.cat([torch.zeros_like(text), *depths]))

    def attention(self) -> Tensor:
        """Which [query, key] pairs may attend, [1, 1, n, n]."""
        anchors = self.positions - self.depths
        text = (self.depths == 0) & (self.positions <= anchors[:, None])
        chain = (self.depths > 0) & (anchors == anchors[:, None])
        return (text | (chain & (self.depths <= self.depths[:, None])))[None, None]

    def fill(self, tokens: Tensor, mask: int) -> Tensor:
        """Inputs [rows, n] of tokens [rows, length]."""
        return tokens[:, self.positions].where(self.depths == 0, mask)
