"""Batches of packed tokens: rows of consecutive corpus tokens, files ended by END."""

from pathlib import Path

import numpy as np
import torch
from config import CONTEXT, tokens_file
from torch import Tensor


class Batches:
    """Training batches in a fixed random order of chunks, each seen once before any twice."""

    def __init__(self, data: Path, side: str = "train", seed: int = 0) -> None:
        self.ids = np.fromfile(tokens_file(data, side), dtype=np.uint16)
        self.chunks = (len(self.ids) - 1) // CONTEXT
        if self.chunks < 1:
            raise SystemExit(f"{tokens_file(data, side)} holds fewer than {CONTEXT} tokens")
        self.seed = seed

    def _chunk(self, number: int) -> np.ndarray:
        """Chunk ``number`` of the order, [CONTEXT + 1] token ids."""
        epoch, index = divmod(number, self.chunks)
        order = np.random.default_rng(self.seed + epoch).permutation(self.chunks)
        start = int(order[index]) * CONTEXT
        return self.ids[start : start + CONTEXT + 1].astype(np.int64)

    def take(self, first: int, count: int, length: int) -> tuple[Tensor, Tensor]:
        """Inputs and next tokens of chunks first .. first + count, both [rows, length].

        ``length`` divides CONTEXT: a chunk gives CONTEXT / length rows.
        """
        chunks = np.stack([self._chunk(first + i) for i in range(count)])
        inputs = torch.from_numpy(chunks[:, :-1].reshape(-1, length).copy())
        targets = torch.from_numpy(chunks[:, 1:].reshape(-1, length).copy())
        return inputs, targets
