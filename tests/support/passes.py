"""Made-up texts, and paged models, for tests of single passes."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import openvino as ov

from ov_specdec.graph.paging import to_paged
from ov_specdec.models.exported import read_ir
from ov_specdec.models.folder import ModelFolder

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


def end_with(model: ov.Model, last_layer: Callable[[ov.Output], ov.Node]) -> None:
    """Put something between the last matrix product of a model and its logits."""
    end = model.output("logits").get_node()
    logits = end.input_value(0)
    changed = last_layer(logits).output(0)
    end.input(0).replace_source_output(changed)
    logits.set_names(set())
    changed.set_names({"logits"})
