"""LongRoPE: a sequence beyond the border is another one, on both KV backends with a real IR."""

import random
import shutil
from functools import cache

import pytest

from ov_specdec import ModelError, SpeculativePipeline
from ov_specdec.errors import ContextLengthError
from ov_specdec.models.folder import ModelFolder
from tests.support.folders import change
from tests.support.tiny import BORDER, CONTEXT, MadeModels, make_pair, reference

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
    return MadeModels(shelf.copy("longrope", lambda folder: make_pair("longrope", folder), target))


@pytest.fixture(scope="module")
def expected(models):
    """What torch generates after a prompt, which it reads from the beginning for each token."""

    @cache
    def tokens(*prompt, num_new=NUM_TOKENS):
        return reference(models.checkpoint, list(prompt), num_new)

    return tokens


PAGED = {"kv": "paged", "precision": "exact"}


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
def test_a_saved_cache_is_that_of_its_side(models, expected, tmp_path, num_new, num_more, is_found):
    prompt, file = prompt_of(40), tmp_path / "prompt.safetensors"
    with SpeculativePipeline(models.main, models.draft, **PAGED) as pipeline:
        result = pipeline.generate(prompt, max_new_tokens=num_new, ignore_eos=True)
        pipeline.save_cache(file)
    text = [*prompt, *result.token_ids]
    following = text + [9] * num_more
    with SpeculativePipeline(models.main, models.draft, **PAGED) as pipeline:
        pipeline.load_cache(file)
        result = pipeline.generate(following, max_new_tokens=30, ignore_eos=True)
        assert result.token_ids == expected(*following, num_new=30)
        # A prompt's last two tokens are read in any case, together.
        kept = min(len(text) - 1, len(following) - 2)
        assert (result.stats.rounds[0].cached_tokens >= kept) == is_found


def test_passes_of_static_shapes_take_the_factors_of_their_side(models, expected):
    settings = {"kv": "paged", "precision": "exact", "static_shapes": [1, 4]}
    with SpeculativePipeline(models.main, models.draft, **settings) as pipeline:
        pipeline.prepare()
        assert pipeline.main.runner.static_shapes >= {1, 4}
        for length in (0, 3):
            result = pipeline.generate(AROUND[1], num_assistant_tokens=length, **OPTIONS)
            assert result.token_ids == expected(*AROUND[1])


@pytest.fixture
def main(models, tmp_path):
    """A copy of the main model's folder, to be changed."""
    return shutil.copytree(models.main, tmp_path / "main")


def test_a_graph_that_does_not_choose_by_the_border_is_refused(main):
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
