"""Hybrids, with real IRs: whatever is drafted, shared, kept or given back, the text is
transformers'."""

from functools import partial

import pytest

from ov_specdec import DeviceError, ModelError, SpeculativePipeline
from ov_specdec.drafters.factory import DrafterKind
from ov_specdec.engine.sequence import Sequence
from ov_specdec.errors import CacheFullError, SessionError
from ov_specdec.models.devices import Device
from ov_specdec.models.exported import NEVER_DRAFT
from ov_specdec.planning.kept_costs import MAIN_SIZES, REPEATED, KeptCosts
from ov_specdec.runner.base import Span
from tests.support.flaky import make_flaky
from tests.support.folders import change
from tests.support.kept import HYBRIDS, NUM_TOKENS, Rehearsed, open_kept
from tests.support.passes import note_passes

BLOCK = 32
GREEDY = {"max_new_tokens": NUM_TOKENS, "ignore_eos": True}


@pytest.fixture(
    scope="module",
    # Qwen3-Next has the layers of Qwen3.5, and experts besides.
    params=[pytest.param(n, marks=pytest.mark.deep if n == "qwen3_next" else []) for n in HYBRIDS],
)
def hybrid(request, tmp_path_factory):
    return open_kept(request.param, tmp_path_factory.mktemp(request.param) / "pair")


def load(hybrid, *args, kv="paged", **settings):
    return SpeculativePipeline(hybrid.main, *args, precision="exact", kv=kv, **settings)


@pytest.fixture
def mostly(hybrid):
    """Drafts what transformers generates, but for every third token."""
    texts = [[*prompt, *output] for prompt, output in hybrid.expected]
    return DrafterKind("mostly", (partial(Rehearsed, texts),))


@pytest.mark.parametrize(
    "kind",
    [
        *("mostly", "both"),
        pytest.param("model", marks=pytest.mark.deep),
        pytest.param("suffix", marks=pytest.mark.deep),
    ],
)
def test_text_is_that_of_transformers_on_fresh_and_on_kept_caches(hybrid, kind, mostly):
    draft = [hybrid.draft] if kind in ("model", "both") else []
    accepted = drafted = 0
    with load(hybrid, *draft, drafter=mostly if kind == "mostly" else kind) as pipeline:
        assert pipeline.main.kv == "paged"
        for keeps in (False, True):
            for prompt, output in hybrid.expected:
                for length in (0, 1, 4, "auto"):
                    result = pipeline.generate(
                        prompt, num_assistant_tokens=length, cache_prompt=keeps, **GREEDY
                    )
                    assert result.token_ids == output
                    if not keeps:
                        accepted += result.stats.accepted
                        drafted += result.stats.drafted
                    if not keeps and kind == "mostly" and length != "auto":
                        rounds = result.stats.rounds[1:]
                        assert max(r.pass_tokens - 1 - r.num_drafted for r in rounds) <= 0
        assert drafted > accepted, "nothing was rejected"
        assert accepted > 0 or kind == "suffix"


def test_a_turn_goes_on_from_the_last_one_on_a_stateful_cache(hybrid, mostly):
    first, output = hybrid.expected[2]
    text = [*first, *output, 7]
    with load(hybrid, drafter="none") as fresh:
        expected = fresh.generate(text, **GREEDY).token_ids
    with load(hybrid, drafter=mostly, kv="stateful") as pipeline:
        for length in (0, 4):
            pipeline.generate(first, num_assistant_tokens=length, **GREEDY)
            result = pipeline.generate(text, num_assistant_tokens=0, **GREEDY)
            assert result.token_ids == expected
            assert result.stats.cached_tokens == len(text) - 2
        pipeline.generate(first, num_assistant_tokens=0, **GREEDY)
        result = pipeline.generate(text, cache_salt="other", num_assistant_tokens=0, **GREEDY)
        assert (result.token_ids, result.stats.cached_tokens) == (expected, 0)


def test_sequences_take_turns_on_a_stateful_cache(hybrid, mostly):
    prompts, outputs = zip(*hybrid.expected, strict=True)
    with load(hybrid, drafter=mostly, kv="stateful") as pipeline:
        results = pipeline.generate_batch(prompts, num_assistant_tokens=3, **GREEDY)
        assert [result.token_ids for result in results] == list(outputs)


@pytest.mark.parametrize("kind", ["mostly", "model"])
def test_nothing_is_drafted_on_a_stateful_cache(hybrid, kind, mostly):
    draft = [hybrid.draft] if kind == "model" else []
    with load(
        hybrid, *draft, kv="stateful", drafter=mostly if kind == "mostly" else kind
    ) as pipeline:
        assert "cannot be rolled back: nothing is drafted" in pipeline.main.reason
        for keeps in (False, True):
            for prompt, output in hybrid.expected:
                for length in (0, 4, "auto"):
                    result = pipeline.generate(
                        prompt, num_assistant_tokens=length, cache_prompt=keeps, **GREEDY
                    )
                    assert result.token_ids == output
                    assert result.stats.drafted == 0


def test_what_openvino_pages_slowly_is_not_paged_unasked(hybrid):
    with load(hybrid, drafter="suffix", kv="auto") as pipeline:
        loaded = pipeline.main
    is_slow = '"linear_attention"' in (hybrid.main / "config.json").read_text()
    assert loaded.kv == ("stateful" if is_slow else "paged")
    assert ("gated delta rule" in loaded.reason) is is_slow


def test_sequences_share_passes(hybrid):
    lengths = [{"num_assistant_tokens": length} for length in (0, 2, 4, 1, 3, "auto")]
    many = [hybrid.expected[i % 3] for i in range(len(lengths))]
    settings = {"max_prefill_tokens_per_step": 40}
    with load(hybrid, hybrid.draft, drafter="both", **settings) as pipeline:
        for keeps in (False, True):
            prompts = [prompt for prompt, _ in many]
            results = pipeline.generate_batch(prompts, lengths, cache_prompt=keeps, **GREEDY)
            assert [r.token_ids for r in results] == [output for _, output in many]
            assert max(r.num_sequences for result in results for r in result.stats.rounds) > 4


@pytest.mark.parametrize("scarce", ["blocks", "states"])
def test_whoever_is_preempted_goes_on_from_the_states_that_are_left(hybrid, scarce, monkeypatch):
    preempted, preempt = [], Sequence.preempt
    monkeypatch.setattr(Sequence, "preempt", lambda own: (preempted.append(own), preempt(own)))
    many = [hybrid.expected[i % 3] for i in range(6)]
    with load(hybrid, hybrid.draft) as pipeline:
        for model in (pipeline.main, pipeline.draft):
            model.runner.limit(*((9 * BLOCK, 400) if scarce == "blocks" else (2000, 18)))
        prompts = [prompt for prompt, _ in many]
        results = pipeline.generate_batch(prompts, num_assistant_tokens=3, **GREEDY)
        assert [r.token_ids for r in results] == [output for _, output in many]
        assert preempted


def test_states_count_as_memory_and_bound_the_drafts(hybrid, mostly):
    with load(hybrid, drafter=mostly) as pipeline:
        runner = pipeline.main.runner
        assert runner.max_draft_tokens >= 16
        per_state = runner.bytes_per_state
    prompt, output = hybrid.expected[1]
    with load(hybrid, drafter=mostly, kv_cache_size=2 * 22 * per_state / 1e9) as small:
        runner = small.main.runner
        assert 0 < runner.capacity * runner.bytes_per_token <= 22 * per_state
        result = small.generate(prompt, num_assistant_tokens=30, **GREEDY)
        assert result.token_ids == output
        # Of 20 states half are for who may come, and four are not for draft tokens.
        assert max(r.num_drafted for r in result.stats.rounds) == 6
    with pytest.raises(CacheFullError, match=r"recurrent states .* raise kv_cache_size"):
        load(hybrid, drafter=mostly, kv_cache_size=2 * 5 * per_state / 1e9)


def test_nobody_is_admitted_without_states(hybrid):
    with load(hybrid, drafter="suffix") as pipeline:
        runner = pipeline.main.runner
        runner.limit(1000, 2 + 7)
        assert runner.num_free == runner.capacity
        runner.forward([Span(runner.open(), [1, 2], 1)])
        assert (runner.num_free, runner.max_draft_tokens) == (0, 0)


def test_passes_are_timed_that_are_as_long_as_said(hybrid, monkeypatch):
    with load(hybrid, drafter="suffix") as pipeline:
        sizes = note_passes(pipeline.main.runner, monkeypatch)
        list(KeptCosts(pipeline.main.runner, None, None).passes())
        assert sizes == [16, *(size for size in MAIN_SIZES for _ in range(REPEATED))]


def test_caches_with_states_are_not_saved(tmp_path):
    hybrid = open_kept("lfm2", tmp_path / "pair")
    with load(hybrid, hybrid.draft) as pipeline:
        pipeline.generate(hybrid.expected[1][0], **GREEDY)
        with pytest.raises(SessionError, match="cannot be saved"):
            pipeline.save_cache(tmp_path / "prompt.safetensors")


def test_static_shapes_change_nothing(tmp_path):
    hybrid = open_kept("lfm2", tmp_path / "pair")
    prompt, output = hybrid.expected[1]
    with load(hybrid, hybrid.draft, static_shapes=[2, 5]) as pipeline:
        pipeline.prepare(seconds=0.2)
        assert {2, 5} <= pipeline.main.runner.static_shapes
        for length in (0, 4):
            result = pipeline.generate(prompt, num_assistant_tokens=length, **GREEDY)
            assert result.token_ids == output


def test_a_gated_delta_rule_has_no_static_shapes(tmp_path):
    hybrid = open_kept("qwen3_next", tmp_path / "pair")
    with load(hybrid, drafter="suffix") as pipeline:
        assert pipeline.main.compiler is None
    with (
        load(hybrid, drafter="suffix", static_shapes=[4]) as pipeline,
        pytest.warns(RuntimeWarning, match="no static shape for passes over 4 tokens"),
    ):
        pipeline.prepare(seconds=0.2)


def test_the_invariance_check_runs(hybrid):
    with SpeculativePipeline(hybrid.main, drafter="suffix", kv="paged") as pipeline:
        assert pipeline.check_batch_invariant().is_checked


def test_a_failed_pass_leaves_the_states_as_they_were(hybrid):
    prompt, output = hybrid.expected[1]
    with load(hybrid, hybrid.draft) as pipeline:
        make_flaky(pipeline.main.runner).fails_in = 9
        with pytest.raises(RuntimeError, match="the device is gone"):
            pipeline.generate(prompt, num_assistant_tokens=3, **GREEDY)
        result = pipeline.generate(prompt, num_assistant_tokens=3, **GREEDY)
        assert result.token_ids == output


@pytest.mark.parametrize("family", sorted(NEVER_DRAFT))
@pytest.mark.parametrize("kv", ["auto", "paged", "stateful"])
def test_families_that_never_draft_are_refused(family, kv, tmp_path):
    hybrid = open_kept("lfm2", tmp_path / "pair")
    change(hybrid.main / "config.json", model_type=family)
    with pytest.raises(ModelError, match=rf"layers of '{family}'.* use openvino\.genai"):
        load(hybrid, drafter="suffix", kv=kv)


def test_a_gpu_is_refused_with_the_reason(hybrid, monkeypatch):
    gpu = Device("GPU", "Fake GPU", ("FP32", "FP16"))
    monkeypatch.setattr("ov_specdec.models.devices.find_device", lambda name: gpu)
    with pytest.raises(DeviceError, match=r"recurrent states .* not been run on GPU: use device"):
        load(hybrid, drafter="suffix")
