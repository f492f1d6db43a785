"""Rows of attention: where they are selected, and that logits do not depend on it."""

import numpy as np
import pytest

from ov_specdec.graph import products
from ov_specdec.graph.paging import paged_attentions, to_paged
from ov_specdec.graph.products import fuse_qkv, repeat_attention_rows
from ov_specdec.models.devices import find_device, openvino_core
from ov_specdec.models.folder import ModelFolder
from ov_specdec.models.runtime_config import RuntimeConfig
from ov_specdec.models.source import read_ir
from ov_specdec.runner.base import Span
from ov_specdec.runner.paged import PagedModel

PASSES = ((33, 1, 2), (1, 1, 1), (1, 5, 1), (2, 1, 9))
"""Tokens of three sequences in each pass."""


def num_gathers(model):
    return sum(node.get_type_name() == "Gather" for node in model.get_ops())


def paged(folder, *, fuses=True):
    """A model with selected rows, and the number of gathers in each layer for them."""
    model = read_ir(ModelFolder.read(folder))
    to_paged(model)
    if fuses:
        fuse_qkv(model)
    before = num_gathers(model)
    repeat_attention_rows(model)
    num_added = num_gathers(model) - before
    return model, divmod(num_added, len(paged_attentions(model)))


def logits(model):
    cpu = find_device("CPU")
    compiled = openvino_core().compile_model(
        model, "CPU", RuntimeConfig(precision="exact").properties_for(cpu)
    )
    runner = PagedModel(compiled, max_length=64, vocab_size=300, is_invariant=True)
    runner.limit(512)
    slots = [runner.open() for _ in PASSES[0]]
    found = []
    for counts in PASSES:
        spans = [
            Span(slot, [7 * (slot.length + index) % 290 for index in range(count)], count)
            for slot, count in zip(slots, counts, strict=True)
        ]
        found += [rows.copy() for rows in runner.forward(spans)]
    return np.concatenate(found)


def test_rows_are_selected_behind_a_fused_product_with_the_same_logits(tiny_pair, monkeypatch):
    model, gathers = paged(tiny_pair[0])
    assert gathers == (2, 1)  # the positions, once
    monkeypatch.setattr(products, "_fused", lambda *_: [])
    other, gathers = paged(tiny_pair[0])
    assert gathers == (4, 0)
    np.testing.assert_array_equal(logits(model), logits(other))


def test_rows_of_single_products_are_selected_one_by_one(tiny_pair):
    assert paged(tiny_pair[0], fuses=False)[1] == (4, 0)


@pytest.mark.deep
@pytest.mark.parametrize("architecture", ["gpt2"], indirect=True)
def test_positions_that_are_embedded_are_not_selected(pair):
    assert paged(pair.main)[1] == (2, 0)
