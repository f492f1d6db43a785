"""A parallel draft model (PARD): its rows against torch, its texts, and what is refused."""

from pathlib import Path

import numpy as np
import pytest

from ov_specdec import ModelError, SpeculativePipeline, TokenizerMismatchError
from ov_specdec.drafters.model import DraftCache, ModelDrafter
from ov_specdec.engine.static_shapes import StaticShapes
from ov_specdec.generation.pipeline import USUAL_STEPS
from ov_specdec.models.compile import load_model
from ov_specdec.models.devices import RuntimeConfig
from ov_specdec.models.exported import open_exported
from ov_specdec.planning.plan import Plan
from ov_specdec.runner.cached_sequence import PREFILL_CHUNK, alone, forward
from tests.support.command_line import run
from tests.support.folders import change, changed
from tests.support.passes import NUM_IDS, Noting, note_passes, tokens
from tests.support.tiny import MASK, VOCAB_SIZE, export, save_checkpoint, save_tokenizer

PROMPT = "def area(width):\n    "
RUN = {"max_new_tokens": 40, "ignore_eos": True}


def make_qwen3(folder):
    """A tiny random checkpoint with a mask token, in `folder / "checkpoint"`, and its export."""
    save_checkpoint("qwen3", folder / "checkpoint")
    change(folder / "checkpoint" / "config.json", pard_token=MASK)
    export(folder / "checkpoint", folder / "draft")


@pytest.fixture(scope="module")
def drafts(tiny_pair, shelf, tmp_path_factory):
    """Checkpoints and exported parallel drafts, by architecture."""
    target = tmp_path_factory.mktemp("drafts")
    qwen3 = shelf.copy("parallel-qwen3", make_qwen3, target / "qwen3", Path(__file__))
    llama = changed(tiny_pair[0], target / "llama", config={"pard_token": MASK})
    checkpoint = tiny_pair[0].parent / "checkpoint"
    return {"llama": (checkpoint, llama), "qwen3": (qwen3 / "checkpoint", qwen3 / "draft")}


def together(steps):
    """Run coroutines that take one pass each in a pass of all; their results."""
    caches = [next(step) for step in steps]
    forward(caches, [cache.span(PREFILL_CHUNK) for cache in caches])
    return list(map(alone, steps))


@pytest.mark.parametrize("kv", ["paged", "stateful"])
@pytest.mark.parametrize("architecture", ["llama", "qwen3"])
def test_rows_are_those_of_torch_wherever_a_draft_was_rejected(drafts, architecture, kv):
    import torch
    from transformers import AutoModelForCausalLM

    checkpoint, folder = drafts[architecture]
    reference = AutoModelForCausalLM.from_pretrained(checkpoint).eval()
    config = RuntimeConfig(kv=kv, precision="exact")
    runner = load_model(open_exported(folder), config).runner
    lengths, texts = (5, 3, 1), [tokens(9, 1), tokens(40, 2), tokens(2, 3)]
    samplers = [Noting() for _ in texts]
    drafters = [ModelDrafter(DraftCache(runner), sampler) for sampler in samplers]
    assert all(drafter.offers([])[0].takes_one_pass for drafter in drafters)
    for number in range(2 * max(lengths)):
        plans = [Plan(length, "constant") for length in lengths]
        drafted = together(list(map(ModelDrafter.propose, drafters, texts, plans)))
        for text, length, sampler, proposal in zip(texts, lengths, samplers, drafted, strict=True):
            masked = torch.tensor([[*text, *[MASK] * (length - 1)]])
            with torch.no_grad():
                expected = reference(masked).logits[0, -length:, :NUM_IDS].numpy()
            sizes, rows = zip(*sampler.rows, strict=True)
            assert list(sizes) == [len(text) + place for place in range(length)]
            np.testing.assert_allclose(np.array(rows), expected, rtol=0, atol=1e-4)
            sampler.rows.clear()
            # From one place more of each draft on, other tokens stand.
            num_accepted = number % (length + 1)
            text += [*proposal.draft.tokens[:num_accepted], (7 * number + length) % NUM_IDS]


@pytest.fixture(scope="module", params=["paged", "stateful"])
def pipeline(request, parallel_pair):
    with SpeculativePipeline(*parallel_pair, kv=request.param, precision="exact") as made:
        yield made


@pytest.mark.parametrize("options", [{}, {"do_sample": True, "temperature": 0.8, "seed": 7}])
def test_texts_are_plain_decodings_and_a_round_takes_one_draft_pass(pipeline, options, monkeypatch):
    passes = note_passes(pipeline.draft.runner, monkeypatch)
    plain = pipeline.generate(PROMPT, num_assistant_tokens=0, **RUN, **options)
    for length in (1, 4, 9):
        passes.clear()
        result = pipeline.generate(PROMPT, num_assistant_tokens=length, **RUN, **options)
        assert result.token_ids == plain.token_ids
        drafts = [done for done in result.stats.rounds if done.num_drafted]
        assert len(passes) == len(drafts)
        assert result.stats.accepted > 0
    # A text that goes on with is kept in the cache, masks are not.
    longer = [*pipeline.tokenizer.encode(PROMPT), *plain.token_ids]
    again = pipeline.generate(longer, num_assistant_tokens=4, **RUN, **options)
    assert again.stats.cached_tokens > 0
    fresh = pipeline.generate(longer, num_assistant_tokens=0, cache_prompt=False, **RUN, **options)
    assert again.token_ids == fresh.token_ids


def test_its_passes_are_padded_to_static_shapes(parallel_pair, monkeypatch):
    usual = []

    def noting(*arguments, **settings):
        usual.append(settings["usual"])
        return StaticShapes(*arguments, **settings)

    monkeypatch.setattr("ov_specdec.generation.pipeline.StaticShapes", noting)
    with SpeculativePipeline(*parallel_pair, precision="exact") as pipeline:
        assert usual == [USUAL_STEPS["parallel"], USUAL_STEPS["main"]]
        plain = pipeline.generate(PROMPT, num_assistant_tokens=0, **RUN)
        runner = pipeline.draft.runner
        for size in usual[0]:
            runner.add_static(size, pipeline.draft.compiler(size)())
        passes = note_passes(runner, monkeypatch)
        result = pipeline.generate(PROMPT, num_assistant_tokens=7, **RUN)
    assert result.token_ids == plain.token_ids
    assert set(passes[1:]) == {8, 16}  # the first reads the prompt


@pytest.mark.parametrize("kv", ["paged", "stateful"])
def test_another_name_and_a_mask_token_of_the_tokenizer(parallel_pair, kv, tmp_path):
    main, draft = parallel_pair
    folder = changed(draft, tmp_path / "draft", config={"pard_token": None, "ptd_token_id": 9})
    with SpeculativePipeline(main, folder, kv=kv, precision="exact") as pipeline:
        assert pipeline.draft.runner.mask_token == 9
        plain = pipeline.generate(PROMPT, num_assistant_tokens=0, **RUN)
        result = pipeline.generate(PROMPT, num_assistant_tokens=4, **RUN)
    assert result.token_ids == plain.token_ids


def test_a_mask_token_outside_the_model_is_refused(parallel_pair, tmp_path):
    main, draft = parallel_pair
    for value, complaint in (
        (VOCAB_SIZE, f"gives the mask token {VOCAB_SIZE} .* has {VOCAB_SIZE} tokens: correct"),
        ("x", "gives pard_token as 'x'"),
        (-1, "gives pard_token as -1"),
    ):
        folder = changed(draft, tmp_path / f"draft{value}", config={"pard_token": value})
        with pytest.raises(ModelError, match=complaint):
            SpeculativePipeline(main, folder)


def test_another_tokenizer_is_refused_with_any_pairing(parallel_pair, tmp_path):
    main, draft = parallel_pair
    folder = changed(draft, tmp_path / "draft")
    save_tokenizer(folder, sample="the quick brown fox\n" * 3)
    with pytest.raises(TokenizerMismatchError, match="different tokenizers"):
        SpeculativePipeline(main, folder)
    for pairing in ("auto", "intersection", "retokenize"):
        with pytest.raises(
            TokenizerMismatchError, match="drafts in parallel, which needs the main"
        ):
            SpeculativePipeline(main, folder, pairing=pairing)
    done = run("check", main, folder)
    assert done.returncode == 1
    assert "pairings: none (draft '" in done.stdout
