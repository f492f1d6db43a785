"""Made-up texts, and paged models, for tests of single passes."""

from pathlib import Path

import numpy as np
import openvino as ov

from ov_specdec.graph.paging import to_paged
from ov_specdec.models.folder import ModelFolder
from ov_specdec.models.source import read_ir

NUM_IDS = 290
"""Of the tokenizer of tiny models."""


def tokens(n: int, seed: int = 0) -> list[int]:
    """Random ids."""
    return np.random.default_rng(seed).integers(0, NUM_IDS, n).tolist()


def paged(folder: Path) -> ov.Model:
    """A model as it is read, with a paged KV cache and nothing else changed."""
    model = read_ir(ModelFolder.read(folder))
    to_paged(model)
    return model
