"""The check that draft tokens can be verified: on models with a fault, and on those without."""

from functools import partial
from pathlib import Path

import numpy as np
import openvino as ov
import pytest
from openvino import opset13 as ops

from ov_specdec import ModelError, SpeculativePipeline
from ov_specdec.graph.paging import to_paged
from ov_specdec.models import agreement, prepare
from ov_specdec.models.agreement import TOLERANCE
from ov_specdec.models.exported import read_ir
from ov_specdec.runner.probe import distance
from tests.support.kept import HYBRIDS, open_kept


def same_positions(model: ov.Model) -> None:
    """Give all tokens of a pass the position of its first one, as a wrong export would."""
    port = next(port for port in model.inputs if "position_ids" in port.names)
    users = list(port.get_target_inputs())
    axes = ops.constant(np.arange(len(port.partial_shape)))
    first = ops.reduce_min(port, axes, keep_dims=True)
    flat = ops.add(ops.multiply(port, ops.constant(np.int64(0))), first)
    for user in users:
        user.replace_source_output(flat.output(0))


def forget_states(kind: str, model: ov.Model) -> None:
    """Have layers of a kind begin anew with each pass, as a wrong export would."""
    states = {v.info.variable_id for v in model.get_variables() if kind in v.info.variable_id}
    found = [node for node in model.get_ops() if node.get_type_name() == "ReadValue"]
    for node in found:
        if node.get_attributes()["variable_id"] in states:
            users = list(node.output(0).get_target_inputs())
            zero = ops.multiply(node, ops.constant(np.float32(0)))
            for user in users:
                user.replace_source_output(zero.output(0))


@pytest.fixture
def spoil(monkeypatch, tmp_path):
    """Has all models, or those that are paged, get a fault; nothing is known of them."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def make(fault, when_paged=False):
        def read_spoilt(folder):
            model = read_ir(folder)
            fault(model)
            model.validate_nodes_and_infer_types()
            return model

        def to_spoilt(model):
            to_paged(model)
            fault(model)
            model.validate_nodes_and_infer_types()

        if when_paged:
            monkeypatch.setattr(prepare, "to_paged", to_spoilt)
        else:
            for module in ("exported", "compile"):
                monkeypatch.setattr(f"ov_specdec.models.{module}.read_ir", read_spoilt)

    return make


def test_the_distance_of_rows():
    generator = np.random.default_rng(0)
    row, other = generator.normal(size=(2, 1000)).astype(np.float32)
    assert distance(row, row) == 0
    assert distance(row, row + 3) < 1e-6
    assert distance(row, other) == pytest.approx(2**0.5, abs=0.1)
    assert distance(row, row + 0.05 * other) == pytest.approx(0.05, abs=0.01)
    assert distance(np.zeros(4, np.float32), np.zeros(4, np.float32)) == 0


@pytest.mark.parametrize("kv", ["paged", "stateful"])
def test_passes_of_models_in_use_agree(kv, tiny_pair, monkeypatch):
    seen = []
    measure = agreement.largest_distance
    monkeypatch.setattr(
        agreement, "largest_distance", lambda runner: seen.append(measure(runner)) or seen[-1]
    )
    monkeypatch.setattr(agreement, "read_section", lambda *_: None)
    with SpeculativePipeline(*tiny_pair, kv=kv):
        assert len(seen) == 2
        assert max(seen) < TOLERANCE / 2


@pytest.mark.parametrize("precision", ["default", "exact"])
@pytest.mark.parametrize(
    "family", ["lfm2", *(pytest.param(n, marks=pytest.mark.deep) for n in HYBRIDS if n != "lfm2")]
)
def test_passes_of_hybrids_agree_and_leave_no_states(family, precision, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    hybrid = open_kept(family, tmp_path / "pair")
    settings = {"precision": precision, "kv": "paged"}
    with SpeculativePipeline(hybrid.main, drafter="suffix", **settings) as pipeline:
        runner = pipeline.main.runner
        assert len(list((tmp_path / "cache").rglob("records/*.json"))) == 1
        states = runner._states
        assert states.num_sequences == 0
        assert states.blocks.num_available == states.size
        assert runner.pool.num_available == runner.pool.size
        assert not states.blocks._nodes and not runner.pool._nodes


@pytest.mark.parametrize("kind", ["conv", "ssm"])
def test_a_hybrid_that_forgets_its_states_is_refused(kind, spoil, tmp_path):
    spoil(partial(forget_states, kind))
    hybrid = open_kept("qwen3_5_text", tmp_path / "pair")
    with pytest.raises(
        ModelError, match=r"main: on a stateful .*, so draft tokens could not be verified: use"
    ):
        SpeculativePipeline(hybrid.main, drafter="suffix", precision="exact", kv="stateful")


@pytest.mark.parametrize("is_hybrid", [True, False])
def test_a_wrong_paged_cache_is_given_up_unless_it_was_asked_for(
    tiny_pair, spoil, tmp_path, is_hybrid
):
    spoil(same_positions, when_paged=True)
    pair = [open_kept("lfm2", tmp_path / "pair").main] if is_hybrid else tiny_pair
    with SpeculativePipeline(*pair, precision="exact") as pipeline:
        for model in filter(None, (pipeline.main, pipeline.draft)):
            assert model.kv == "stateful"
            assert "on a paged KV cache the logits of a pass over" in model.reason
        options = {"max_new_tokens": 20, "ignore_eos": True}
        plain = pipeline.generate("def", num_assistant_tokens=0, **options)
        assert pipeline.generate("def", num_assistant_tokens=4, **options).text == plain.text
    with pytest.raises(ModelError, match=r"main: on a paged KV cache .* pass over .*use another"):
        SpeculativePipeline(*pair, kv="paged", precision="exact")


def test_a_model_that_is_wrong_on_both_caches_is_refused(tiny_pair, spoil):
    spoil(same_positions)
    with pytest.raises(ModelError, match=r"on a paged .*; on a stateful .*use another model") as e:
        SpeculativePipeline(*tiny_pair, precision="exact")
    assert "\n" not in str(e.value)


def test_what_was_seen_is_kept(tiny_pair, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    SpeculativePipeline(*tiny_pair).close()
    kept = sorted((tmp_path / "cache" / "ov-specdec" / "records").glob("*.json"))
    assert len(kept) == 2
    # Of what is kept of another version, or spoiled, nothing is believed.
    kept[0].write_text('{"version": 0, "distance": 9}')
    Path(kept[1]).write_text("[")
    SpeculativePipeline(*tiny_pair).close()

    def measure(_):
        raise AssertionError("it is known")

    monkeypatch.setattr(agreement, "largest_distance", measure)
    SpeculativePipeline(*tiny_pair).close()
