"""Made-up texts, and paged models, for tests of single passes."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import openvino as ov
import pytest

from ov_specdec.graph.paging import to_paged
from ov_specdec.models.exported import read_ir
from ov_specdec.models.folder import ModelFolder
from ov_specdec.runner.base import Logits, Runner, Span
from ov_specdec.sampling.samplers import Sampler

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


def note_passes(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The tokens of each pass that a runner runs from now on."""
    sizes, forward = list[int](), runner.forward

    def noted(spans: Sequence[Span]) -> list[Logits]:
        sizes.append(sum(len(span.tokens) for span in spans))
        return forward(spans)

    monkeypatch.setattr(runner, "forward", noted)
    return sizes


class Noting(Sampler):
    """Keeps each row, with the number of tokens of its history."""

    def __init__(self):
        super().__init__()
        object.__setattr__(self, "rows", [])

    def sample(self, tokens, row):
        self.rows.append((len(tokens), row.copy()))
        return super().sample(tokens, row)


def end_with(model: ov.Model, last_layer: Callable[[ov.Output], ov.Node]) -> None:
    """Put something between the last matrix product of a model and its logits."""
    end = model.output("logits").get_node()
    logits = end.input_value(0)
    changed = last_layer(logits).output(0)
    end.input(0).replace_source_output(changed)
    logits.set_names(set())
    changed.set_names({"logits"})
