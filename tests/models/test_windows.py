"""Models with windows, chunks and borders: what they attend to, on both KV caches, past all of it.

`tests.support.kept` says where the models come from, and what they are compared with.
"""

import shutil

import pytest

from ov_specdec import ModelError, SpeculativePipeline
from ov_specdec.graph.attention import require_windows, windows
from ov_specdec.graph.paging import to_paged
from ov_specdec.models.agreement import compare_caches
from ov_specdec.models.exported import open_exported
from ov_specdec.models.folder import ModelFolder
from tests.support.command_line import run
from tests.support.families import WINDOW
from tests.support.folders import change
from tests.support.kept import NUM_TOKENS, WINDOWED, open_kept

DEEP = pytest.mark.deep
OPTIONS = {"max_new_tokens": NUM_TOKENS, "ignore_eos": True}
SEVERAL = {"num_assistant_tokens": 4, **OPTIONS}


@pytest.fixture(
    scope="module",
    # One with windows, and one with chunks.
    params=[
        pytest.param(n, marks=[] if n in ("gemma3_text", "llama4_text") else DEEP) for n in WINDOWED
    ],
)
def models(request, tmp_path_factory):
    """A tiny model of each family."""
    return open_kept(request.param, tmp_path_factory.mktemp("windows") / request.param)


@pytest.fixture
def family(tmp_path):
    """Gives a tiny model by the name of its family."""
    return lambda name: open_kept(name, tmp_path / name)


@pytest.fixture(scope="module", params=["auto", "stateful"])
def pipeline(models, request):
    with SpeculativePipeline(
        models.main, models.draft, precision="exact", kv=request.param
    ) as pipeline:
        yield pipeline


@pytest.mark.parametrize(
    "length", [4, *(pytest.param(n, marks=pytest.mark.deep) for n in (0, 1, "auto"))]
)
def test_texts_past_windows_are_those_of_transformers(models, pipeline, length):
    accepted = drafted = 0
    for reuse in (False, True):  # then on a kept KV cache
        for prompt, output in models.expected:
            result = pipeline.generate(
                prompt, num_assistant_tokens=length, cache_prompt=reuse, **OPTIONS
            )
            assert result.token_ids == output
            accepted += result.stats.accepted
            drafted += result.stats.drafted
    # With such a draft, the planner decodes plainly.
    assert accepted < drafted or length in (0, "auto"), "nothing was rejected"
    prompts, outputs = zip(*models.expected, strict=True)
    results = pipeline.generate_batch(prompts, **SEVERAL)
    assert [result.token_ids for result in results] == list(outputs)


def test_so_they_are_in_chunks_and_on_the_suffix_drafter(models):
    with SpeculativePipeline(
        models.main, drafter="suffix", precision="exact", max_prefill_tokens_per_step=16
    ) as pipeline:
        for prompt, output in models.expected:
            assert pipeline.generate(prompt, **OPTIONS).token_ids == output


def test_windows_are_read_off_graphs(models):
    windowed = models.main.parent.name in ("gemma3_text", "gpt_neo", "gpt_oss")
    # Of two layers one.
    assert windows(open_exported(models.main).model) == [WINDOW] * windowed


def test_chunks_are_refused_on_a_paged_cache_that_a_text_may_cross(family):
    llama4 = family("llama4_text")
    with pytest.raises(ModelError, match=r"chunks of 32 tokens.*or max_model_len=32"):
        SpeculativePipeline(llama4.main, drafter="suffix", kv="paged")
    with SpeculativePipeline(llama4.main, drafter="suffix", precision="exact") as pipeline:
        assert pipeline.main.kv == "stateful"
        assert "chunks of 32" in pipeline.main.reason
        prompt, output = llama4.expected[0]
        for _ in range(2):  # masked entries would shift the chunk
            assert pipeline.generate(prompt, **SEVERAL).token_ids == output


def test_chunks_that_no_text_crosses_are_no_obstacle(family):
    llama4 = family("llama4_text")
    prompt, output = llama4.expected[0]
    with SpeculativePipeline(
        llama4.main, drafter="suffix", precision="exact", kv="paged", max_model_len=WINDOW
    ) as pipeline:
        result = pipeline.generate(prompt, max_new_tokens=None, ignore_eos=True)
        assert result.token_ids == output[: WINDOW - len(prompt)]


def test_a_window_that_is_only_in_the_graph_is_kept_to(family):
    gemma3 = family("gemma3_text")
    change(gemma3.main / "config.json", sliding_window=None)
    prompt, output = gemma3.expected[1]
    with SpeculativePipeline(
        gemma3.main, drafter="suffix", precision="exact", kv="stateful"
    ) as pipeline:
        for _ in range(2):
            assert pipeline.generate(prompt, **SEVERAL).token_ids == output


def test_a_window_that_is_lost_on_the_way_to_a_paged_cache_is_noticed(family):
    source = open_exported(family("gemma3_text").main)
    to_paged(source.model)
    require_windows(source.model, 1)
    with pytest.raises(ModelError, match="of 2 layers with a window, OpenVINO carries over 1"):
        require_windows(source.model, 2)


def test_check_compares_both_caches_past_windows(models, tmp_path):
    found = compare_caches(ModelFolder.read(models.main))
    assert not found.is_broken
    if models.main.parent.name == "llama4_text":
        assert "chunks of 32 tokens" in found.finding
        unnamed = shutil.copytree(models.main, tmp_path / "main")
        change(unnamed / "config.json", attention_chunk_size=None)
        found = compare_caches(ModelFolder.read(unnamed))
        assert found.is_broken
        assert "paged and stateful DIFFER" in found.finding
        done = run("check", unnamed)
        assert done.returncode == 1
        assert "KV caches: paged and stateful DIFFER" in done.stdout
    elif models.main.parent.name == "gpt_neo":
        assert "of 1 layers with a window, OpenVINO carries over 0" in found.finding
    else:
        assert f"at {WINDOW}" in found.finding


CAPPED = r"scores are not capped at 50 .* those of transformers with attn_implementation=\"sdpa\""


def test_a_cap_that_the_export_has_dropped_is_told_at_load(family):
    gemma = family("gemma3_text")
    change(gemma.main / "config.json", attn_logit_softcapping=50.0)
    with pytest.warns(RuntimeWarning, match=CAPPED):
        SpeculativePipeline(gemma.main, drafter="none").close()
