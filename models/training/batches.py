"""Batches of packed tokens: rows of consecutive corpus tokens, files ended by END."""

from pathlib import Path

import numpy as np
import torch
from config import tokens_file
from torch import Tensor


class Batches:
    """Rows of one side of the corpus in a random order, each row seen once before any twice.

    The order is that of the seed and the row length; rows are short pieces of many files, so that
    the tokens of a batch have little to do with one another.
    """

    def __init__(self, data: Path, side: str = "train", seed: int = 0) -> None:
        self.ids = np.fromfile(tokens_file(data, side), dtype=np.uint16)
        self.side, self.seed = side, seed
        self._drawn = (-1, -1)
        self._order = np.empty(0, dtype=np.int64)

    def _count(self, length: int) -> int:
        """How many rows of ``length`` inputs there are."""
        count = (len(self.ids) - 1) // length
        if count < 1:
            raise SystemExit(f"the {self.side} side holds fewer than {length} tokens")
        return count

    def _row(self, number: int, length: int) -> np.ndarray:
        """Row ``number`` of the order, [length + 1] token ids."""
        epoch, index = divmod(number, self._count(length))
        if self._drawn != (epoch, length):
            random = np.random.default_rng(self.seed + epoch)
            self._order = random.permutation(self._count(length))
            self._drawn = (epoch, length)
        start = int(self._order[index]) * length
        return self.ids[start : start + length + 1].astype(np.int64)

    def rows(self, first: int, count: int, length: int) -> Tensor:
        """The rows from token ``first`` of the order on, [count / length, length + 1] token ids.

        ``length`` divides ``first`` and ``count`` (tokens).
        """
        numbers = range(first // length, (first + count) // length)
        return torch.from_numpy(np.stack([self._row(number, length) for number in numbers]))

    def take(self, first: int, count: int, length: int) -> tuple[Tensor, Tensor]:
        """The same rows as inputs and next tokens, both [count / length, length]."""
        rows = self.rows(first, count, length)
        return rows[:, :-1], rows[:, 1:]
