"""LongRoPE: a sequence beyond the border is another one, on both KV backends with a real IR."""

import random
import shutil
from dataclasses import replace
from functools import cache

import pytest

from ov_specdec import ModelError, SpeculativePipeline
from ov_specdec.engine import round as decoding
from ov_specdec.engine.sequence import Sequence
from ov_specdec.errors import ContextLengthError
from ov_specdec.models.folder import ModelFolder
from tests.cli.test_input import change
from tests.support.tiny import BORDER, CONTEXT, TinyPair, make_pair, reference

NUM_TOKENS = 50
OPTIONS = {"max_new_tokens": NUM_TOKENS, "ignore_eos": True}
BACKENDS = [
    pytest.param(("paged", None), id="paged"),
    pytest.param(("stateful", None), id="stateful", marks=pytest.mark.deep),
    pytest.param(("stateful", 0), id="trimmed", marks=pytest.mark.deep),
]


def prompt_of(num_tokens, seed=0):
    return random.Random(1000 * seed + num_tokens).choices(range(1, 290), k=num_tokens)  # noqa: S311


AROUND = tuple(map(prompt_of, (20, 60, 63, 64, 65, 66, 110)))
"""Prompts before, at and beyond the border; all outputs end beyond it."""


@pytest.fixture(scope="module")
def models(shelf, tmp_path_factory):
    """A tiny Phi-3 with LongRoPE, and a draft that agrees with it sometimes."""
    target = tmp_path_factory.mktemp("longrope") / "pair"
    return TinyPair(shelf.copy("longrope", lambda folder: make_pair("longrope", folder), target))


@pytest.fixture(scope="module")
def expected(models):
    """What torch generates after a prompt, which it reads from the beginning for each token."""

    @cache
    def tokens(*prompt, num_new=NUM_TOKENS):
        return reference(models.checkpoint, list(prompt), num_new)

    return tokens


@pytest.fixture(scope="module", params=BACKENDS)
def backend(request):
    kv, max_masked_tokens = request.param
    return {"kv": kv, "max_masked_tokens": max_masked_tokens, "precision": "exact"}


@pytest.fixture(scope="module")
def pipeline(models, backend):
    with SpeculativePipeline(models.main, models.draft, **backend) as pipeline:
        yield pipeline


@pytest.mark.parametrize("prompt", AROUND, ids=len)
def test_output_is_the_checkpoints_own_from_below_the_border_to_beyond(pipeline, expected, prompt):
    for length in (0, 3, "auto"):
        result = pipeline.generate(
            prompt, num_assistant_tokens=length, cache_prompt=False, **OPTIONS
        )
        assert result.token_ids == expected(*prompt)


@pytest.mark.parametrize("chunk", [None, 16])
def test_sequences_on_both_sides_share_steps(models, backend, expected, chunk):
    """Some prompts are read in chunks beside others: those of a long one lie below the border."""
    settings = {"max_prefill_tokens_per_step": chunk, "max_batch_size": 3 if chunk else 16}
    lengths = [{"num_assistant_tokens": length} for length in (0, 2, 4, 0, 3, 1, 4)]
    with SpeculativePipeline(models.main, models.draft, **backend, **settings) as pipeline:
        for shared in ({"cache_prompt": False}, {}):
            results = pipeline.generate_batch(AROUND, lengths, **OPTIONS, **shared)
            for prompt, result in zip(AROUND, results, strict=True):
                assert result.token_ids == expected(*prompt)
        if pipeline.main.runner.max_sequences is None:
            assert max(r.num_sequences for result in results for r in result.stats.rounds) > 2


@pytest.mark.parametrize("backend", [("paged", None), ("stateful", None)], indirect=True, ids=str)
def test_a_turn_that_crosses_the_border_reads_its_conversation_once_more(models, backend, expected):
    first, more = prompt_of(40), prompt_of(30, 1)
    with SpeculativePipeline(models.main, models.draft, **backend) as pipeline:

        def turn(prompt, num_new):
            result = pipeline.generate(prompt, max_new_tokens=num_new, ignore_eos=True)
            assert result.token_ids == expected(*prompt, num_new=num_new)
            return result.stats.cached_tokens

        assert turn(first, 10) == 0
        text = [*first, *expected(*first, num_new=10)]
        assert turn([*text, 5, 6], 5) >= len(text) - 1
        assert turn([*text, *more], 5) == 0
        text += more
        text += expected(*text, num_new=5)
        assert turn([*text, 5, 6], 5) >= len(text) - 1
        turn([*text[:50], 7], 5)  # an edit far back
        turn([*first, 8, *more], 5)


@pytest.mark.parametrize(
    ("num_new", "num_more", "is_found"),
    [
        *((23, 3, False), (25, 1, True)),
        *(
            pytest.param(*case, marks=pytest.mark.deep)
            for case in ((23, 1, True), (24, 0, True), (24, 1, False), (40, 3, True))
        ),
    ],
)
def test_a_saved_cache_is_that_of_its_side(
    models, backend, expected, tmp_path, num_new, num_more, is_found
):
    prompt, file = prompt_of(40), tmp_path / "prompt.safetensors"
    with SpeculativePipeline(models.main, models.draft, **backend) as pipeline:
        result = pipeline.generate(prompt, max_new_tokens=num_new, ignore_eos=True)
        pipeline.save_cache(file)
    text = [*prompt, *result.token_ids]
    following = text + [9] * num_more
    with SpeculativePipeline(models.main, models.draft, **backend) as pipeline:
        pipeline.load_cache(file)
        result = pipeline.generate(following, max_new_tokens=30, ignore_eos=True)
        assert result.token_ids == expected(*following, num_new=30)
        assert (result.stats.rounds[0].cached_tokens >= len(text) - 1) == is_found


def test_a_cache_of_another_border_is_refused(pipeline):
    other = replace(pipeline.main, folder=replace(pipeline.main.folder, original_length=None))
    assert other.fingerprint() != pipeline.main.fingerprint()


def test_whoever_is_preempted_goes_on_on_his_side(models, expected, monkeypatch):
    preempted, preempt = [], Sequence.preempt
    monkeypatch.setattr(Sequence, "preempt", lambda own: (preempted.append(own), preempt(own)))
    settings = {"kv": "paged", "precision": "exact"}
    with SpeculativePipeline(models.main, models.draft, **settings) as large:
        runners = large.main.runner, large.draft.runner
        memory = 9 * 32 * sum(runner.bytes_per_token for runner in runners) / 1e9
    with SpeculativePipeline(models.main, models.draft, kv_cache_size=memory, **settings) as small:
        results = small.generate_batch(AROUND, num_assistant_tokens=3, **OPTIONS)
        assert [result.token_ids for result in results] == [expected(*p) for p in AROUND]
        assert preempted


def test_passes_of_static_shapes_take_the_factors_of_their_side(models, expected):
    settings = {"kv": "paged", "precision": "exact", "static_shapes": [1, 4]}
    with SpeculativePipeline(models.main, models.draft, **settings) as pipeline:
        pipeline.prepare()
        assert pipeline.main.runner.static_shapes >= {1, 4}
        for length in (0, 3):
            result = pipeline.generate(AROUND[1], num_assistant_tokens=length, **OPTIONS)
            assert result.token_ids == expected(*AROUND[1])


@pytest.mark.parametrize("drafter", ["suffix", "prompt-lookup", "both"])
def test_other_drafters_leave_the_border_to_the_main_model(models, expected, drafter):
    draft = models.draft if drafter == "both" else None
    with SpeculativePipeline(models.main, draft, drafter=drafter, precision="exact") as pipeline:
        prompt = prompt_of(6) * 9
        drafted = 0
        for length in (2, 5):
            result = pipeline.generate(prompt, num_assistant_tokens=length, **OPTIONS)
            assert result.token_ids == expected(*prompt)
            drafted += result.stats.drafted
        assert drafted > 0


def test_a_draft_model_crosses_a_border_that_the_main_model_does_not_have(tiny_pair, models):
    with SpeculativePipeline(tiny_pair[0], models.draft, precision="exact") as pipeline:
        plain = pipeline.generate(AROUND[1], num_assistant_tokens=0, **OPTIONS)
        result = pipeline.generate(AROUND[1], num_assistant_tokens=3, **OPTIONS)
        assert result.token_ids == plain.token_ids
        # At the border it is asked for one draft token, beyond it for three again.
        assert [r.num_drafted for r in result.stats.rounds[-10:-4]] == [3] * 6


def test_each_token_of_a_prompt_is_scored_as_if_it_were_generated(pipeline, models, monkeypatch):
    import torch
    from transformers import AutoModelForCausalLM

    monkeypatch.setattr(decoding, "SCORED_PER_PASS", 40)
    checkpoint = AutoModelForCausalLM.from_pretrained(models.checkpoint).eval()
    prompt = AROUND[-1]
    result = pipeline.generate(prompt, max_new_tokens=1, prompt_logprobs=0)
    for place in (1, BORDER - 1, BORDER, BORDER + 1, len(prompt) - 1):
        with torch.no_grad():
            row = checkpoint(torch.tensor([prompt[:place]]), use_cache=False).logits[0, -1, :290]
        logprob = float(row.log_softmax(-1)[prompt[place]])
        assert result.prompt_logprobs[place].logprob == pytest.approx(logprob, abs=1e-3)


@pytest.fixture
def main(models, tmp_path):
    """A copy of the main model's folder, to be changed."""
    return shutil.copytree(models.main, tmp_path / "main")


def test_a_graph_that_does_not_choose_by_the_border_is_refused_with_the_remedy(main):
    change(main / "config.json", original_max_position_embeddings=100)
    with pytest.raises(ModelError, match=r"more than 100 tokens .*set max_position_embeddings"):
        SpeculativePipeline(main, drafter="none")


def test_a_context_up_to_the_border_needs_no_choice(main, expected):
    change(main / "config.json", max_position_embeddings=BORDER)
    with SpeculativePipeline(main, drafter="none", precision="exact") as pipeline:
        assert pipeline.main.runner.original_context is None
        prompt = AROUND[1]
        result = pipeline.generate(prompt, max_new_tokens=20, ignore_eos=True)
        assert result.token_ids == expected(*prompt, num_new=BORDER - len(prompt))
        with pytest.raises(ContextLengthError, match=f"context length is {BORDER}"):
            pipeline.generate(prompt_of(BORDER))


LONG = {"long_factor": [2.0], "original_max_position_embeddings": 50}


@pytest.mark.parametrize(
    ("settings", "border"),
    [
        ({"rope_parameters": {**LONG, "rope_type": "longrope"}}, 50),
        ({"rope_parameters": None, "rope_scaling": {**LONG, "type": "su"}}, 50),
        ({"rope_parameters": {"full": LONG, "sliding": {"rope_type": "default"}}}, 50),
        ({"rope_parameters": LONG, "original_max_position_embeddings": 40}, 40),
        ({"rope_parameters": {**LONG, "original_max_position_embeddings": CONTEXT}}, None),
        ({"rope_parameters": {"long_factor": [2.0]}}, None),
        ({"rope_parameters": {"rope_type": "yarn", "factor": 2.0}}, None),
        ({"rope_parameters": None}, None),
    ],
)
def test_the_border_is_read_from_the_configuration(main, settings, border):
    change(main / "config.json", **{"original_max_position_embeddings": None, **settings})
    assert ModelFolder.read(main).original_length == border


def test_a_border_that_is_no_length_is_refused(main):
    change(main / "config.json", original_max_position_embeddings="far")
    with pytest.raises(ModelError, match="original_max_position_embeddings as 'far'"):
        ModelFolder.read(main)
