"""Static shapes: a model compiled once more for passes over so many tokens."""

import warnings

import numpy as np
import pytest

from ov_specdec import OptionError, SpeculativePipeline
from ov_specdec.engine import static_shapes as shapes_module
from ov_specdec.errors import CacheFullError, DeviceError
from ov_specdec.graph.paging import static_shape
from ov_specdec.models import prepare as prepare_module
from ov_specdec.models.compile import load_model
from ov_specdec.models.devices import RuntimeConfig, compile_model
from ov_specdec.models.exported import open_exported
from ov_specdec.results.chunks import collect
from ov_specdec.runner.base import Span
from ov_specdec.runner.probe import try_static
from tests.support.flaky import make_flaky

PROMPT = "def area(w, h):"


def load(folder, sizes):
    """A tiny model in exact precision, with static shapes of these sizes."""
    config = RuntimeConfig(kv="paged", precision="exact", num_threads=1, static_shapes="auto")
    loaded = load_model(open_exported(folder), config)
    for size in sizes:
        loaded.runner.add_static(size, loaded.compiler(size)())
    return loaded.runner


def test_static_shapes_share_a_cache_that_grew_or_whose_pass_failed(tiny_pair):
    copied, plain = load(tiny_pair[0], (4,)), load(tiny_pair[0], ())
    for model in (copied, plain):
        model.limit(4096)
    flaky = make_flaky(copied)
    rng = np.random.default_rng(0)

    def feed(slots, num_tokens):
        tokens = rng.integers(0, 290, num_tokens).tolist()
        [ours], [theirs] = (
            model.forward([Span(slot, tokens, 1)])
            for model, slot in zip((copied, plain), slots, strict=True)
        )
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-4)

    pairs = [(copied.open(), plain.open()) for _ in range(3)]
    for slots in pairs:
        for num_tokens in (4, 150, 4):
            feed(slots, num_tokens)
    flaky.fails_in = 0
    with pytest.raises(RuntimeError, match="the device is gone"):
        copied.forward([Span(pairs[0][0], [1, 2, 3, 4], 1)])
    for slots in pairs:
        feed(slots, 4)


def test_they_come_while_texts_are_decoded(tiny_pair, monkeypatch):
    monkeypatch.setattr("ov_specdec.engine.static_shapes.SECONDS", 0.05)
    # In idle time it would never end where other tests have all cores.
    monkeypatch.setattr(shapes_module, "set_policy", lambda *_: None)
    settings = {"precision": "exact", "num_threads": 1, "batch_invariant": True}
    options = {"max_new_tokens": 300, "ignore_eos": True}
    with SpeculativePipeline(*tiny_pair, static_shapes="none", **settings) as pipeline:
        expected = pipeline.generate(PROMPT, **options).token_ids
        assert pipeline.main.compiler is None
    with SpeculativePipeline(*tiny_pair, **settings) as pipeline:
        seen = []
        while len(seen) < 200 and not pipeline.main.runner.static_shapes:
            sizes = [pipeline.main.runner.static_shapes for _ in pipeline.stream(PROMPT, **options)]
            seen.append(sizes)
            assert pipeline.generate(PROMPT, **options).token_ids == expected
        assert seen[0][0] == set()  # nothing was compiled before the first text
        assert pipeline.main.runner.static_shapes


@pytest.mark.parametrize(
    "length", [3, *(pytest.param(n, marks=pytest.mark.deep) for n in (0, "auto"))]
)
def test_taken_up_in_the_middle_of_a_text_they_leave_its_bits_as_they_are(tiny_pair, length):
    options = {"max_new_tokens": 40, "ignore_eos": True, "cache_prompt": False}
    options |= {"num_assistant_tokens": length, "logprobs": 2}
    with SpeculativePipeline(*tiny_pair, batch_invariant=True) as pipeline:
        assert pipeline.batch_invariant.is_verified
        expected = pipeline.generate(PROMPT, **options)
        models = pipeline.main, pipeline.draft
        shapes = [(m.runner, size, m.compiler(size)()) for m in models for size in (1, 2, 4)]
        chunks = []
        for chunk in pipeline.stream(PROMPT, **options):
            chunks.append(chunk)
            if len(chunks) == 5:
                for runner, *shape in shapes:
                    runner.add_static(*shape)
        result = collect(chunks)
        assert len(chunks) > 10
        assert (result.token_ids, result.logprobs) == (expected.token_ids, expected.logprobs)


def test_a_single_token_with_a_spare_runs_in_the_shape_of_two(tiny_pair):
    with SpeculativePipeline(*tiny_pair, static_shapes=[1, 3]) as pipeline:
        model = pipeline.main.runner
        assert model.is_invariant
        pipeline.prepare()
        assert model.static_shapes == {1, 2, 3}
        model.is_invariant = False
        assert model.static_shapes == {2, 3}


def test_large_models_have_none_of_their_own_accord(tiny_pair, monkeypatch):
    monkeypatch.setattr(shapes_module, "MOST_WEIGHTS", 10)
    with SpeculativePipeline(*tiny_pair) as pipeline:
        pipeline.prepare()
        assert pipeline.main.runner.static_shapes == set()
    with SpeculativePipeline(*tiny_pair, static_shapes=[2]) as pipeline:
        pipeline.prepare()
        assert pipeline.main.runner.static_shapes == {1, 2}
    monkeypatch.undo()
    monkeypatch.setattr(shapes_module, "SHARE_OF_FREE", 1e-9)
    with SpeculativePipeline(*tiny_pair) as pipeline:
        pipeline.prepare()
        assert pipeline.main.runner.static_shapes == set()


@pytest.mark.parametrize("given", ["", "all", [], [0], [1.5], ["8"], [True], [10_000], 8, None])
def test_other_sizes_are_refused(given):
    with pytest.raises(OptionError, match="static_shapes="):
        SpeculativePipeline(static_shapes=given)


def test_a_static_shape_that_cannot_be_made_is_left_out_and_said(tiny_pair, monkeypatch):
    def fails_at_three(model, size):
        if size == 3:
            raise MemoryError("it has no form")
        return static_shape(model, size)

    def fails_at_four(model, *rest, **more):
        if str(model.input("input_ids").partial_shape) == "[4]":
            raise DeviceError("it does not compile")
        return compile_model(model, *rest, **more)

    monkeypatch.setattr(prepare_module, "static_shape", fails_at_three)
    monkeypatch.setattr("ov_specdec.models.prepare.compile_model", fails_at_four)
    with SpeculativePipeline(*tiny_pair, static_shapes=[2, 3, 4]) as pipeline:
        with pytest.warns(RuntimeWarning) as warned:
            pipeline.prepare()
        assert [str(each.message) for each in warned] == [
            "no static shape for 3 tokens is used: it has no form",
            "no static shape for 4 tokens is used: it does not compile",
        ]
        assert pipeline.main.runner.static_shapes == {1, 2}
        assert len(pipeline.generate(PROMPT, max_new_tokens=9, num_assistant_tokens=3).token_ids)


@pytest.mark.parametrize("is_invariant", [True, False])
def test_a_static_shape_that_gives_other_logits_is_not_used(tiny_pair, is_invariant, monkeypatch):
    """Another model's. Where bits need not be equal, what differs by rounding is taken."""
    wrong = load_model(open_exported(tiny_pair[1]), RuntimeConfig(static_shapes=(2,)))
    monkeypatch.setattr(prepare_module.Prepared, "compiler", lambda own: wrong.compiler)
    wanted = {"static_shapes": [2], "batch_invariant": "auto" if is_invariant else False}
    with SpeculativePipeline(tiny_pair[0], drafter="none", **wanted) as pipeline:
        with pytest.warns(RuntimeWarning, match="no static shape for 2 .*its logits differ"):
            pipeline.prepare()
        assert pipeline.main.runner.static_shapes == set()


@pytest.mark.parametrize(("kv", "max_model_len"), [("paged", 16), ("stateful", 12)])
def test_a_tiny_context_goes_without_a_word(tiny_pair, max_model_len, kv, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for _ in range(2):  # the second one finds what the first one has kept
        with SpeculativePipeline(*tiny_pair, kv=kv, max_model_len=max_model_len) as pipeline:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                pipeline.prepare()
            assert pipeline.main.runner.static_shapes == set()
            assert len(pipeline.generate([3], max_new_tokens=1, ignore_eos=True).token_ids) == 1


def test_a_shape_for_whose_trial_there_is_no_memory_is_tried_again(tiny_pair, monkeypatch):
    tried = []

    def full_at_first(*given):
        tried.append(given)
        if len(tried) == 1:
            raise CacheFullError("no block is free")
        return try_static(*given)

    monkeypatch.setattr("ov_specdec.engine.static_shapes.try_static", full_at_first)
    with SpeculativePipeline(tiny_pair[0], drafter="none", static_shapes=[2]) as pipeline:
        pipeline.prepare()
        assert pipeline.main.runner.static_shapes == set()
        pipeline.prepare()
        assert 2 in pipeline.main.runner.static_shapes
    assert tried[0][2] is tried[1][2]  # it was compiled once
