"""The suffix drafter in a pipeline: reference texts, and what earlier generations wrote."""

import json

import pytest

from ov_specdec import OptionError, SpeculativePipeline
from ov_specdec.drafters.suffix_index import SuffixIndex
from ov_specdec.generation import text_generator
from tests.support.agents import called, follow

PROMPT = "def area("
OPTIONS = {"max_new_tokens": 40, "ignore_eos": True, "num_assistant_tokens": 6}


@pytest.fixture(scope="module")
def plain(tiny_pair):
    with SpeculativePipeline(tiny_pair[0], drafter="none", precision="exact") as pipeline:
        options = {"max_new_tokens": 40, "ignore_eos": True}
        yield lambda **more: pipeline.generate(PROMPT, **{**options, **more})


@pytest.fixture
def pipeline(tiny_pair):
    """One that has not written anything yet."""
    with SpeculativePipeline(tiny_pair[0], drafter="suffix", precision="exact") as pipeline:
        yield pipeline


def sources(result):
    """Where accepted draft tokens came from."""
    return {r.source for r in result.stats.rounds if r.num_accepted}


def test_an_earlier_output_gives_the_draft_tokens_of_the_next_one(pipeline, plain):
    first, second = (pipeline.generate(PROMPT, **OPTIONS) for _ in range(2))
    assert first.token_ids == second.token_ids == plain().token_ids
    assert "earlier" not in sources(first)
    assert "earlier" in sources(second)
    # The first token comes with the prefill, each round after it brings seven.
    assert second.stats.main_passes == 1 + -(-39 // 7)


@pytest.mark.parametrize("is_verified", [False, True])
def test_a_seeded_draft_looks_back_only_where_passes_agree(pipeline, monkeypatch, is_verified):
    monkeypatch.setattr(pipeline.main.runner, "is_verified", is_verified)
    options = {**OPTIONS, "temperature": 1.1, "seed": 3}
    first = pipeline.generate(PROMPT, **options)
    pipeline.generate(PROMPT, **OPTIONS)
    second = pipeline.generate(PROMPT, **options)
    assert first.token_ids == second.token_ids
    assert ("earlier" in sources(second)) is is_verified


def test_reference_texts_give_draft_tokens_and_do_not_change_the_output(pipeline, plain):
    expected = plain()
    without = pipeline.generate(PROMPT, cache_prompt=False, **OPTIONS)
    options = {**OPTIONS, "cache_prompt": False}
    for texts in (expected.text, ["nothing of it", expected.text]):
        result = pipeline.generate(PROMPT, reference_texts=texts, **options)
        assert result.token_ids == expected.token_ids
        assert result.stats.main_passes < without.stats.main_passes
        assert result.stats.prompt_tokens == without.stats.prompt_tokens


def test_reference_texts_are_read_once_for_all_choices(pipeline, plain, monkeypatch):
    expected, add, added = plain(), SuffixIndex.add, []
    monkeypatch.setattr(
        SuffixIndex, "add", lambda index, text: (added.append(list(text)), add(index, text))
    )
    texts = [f"{expected.text}#", "nothing of it"]
    drawn = {**OPTIONS, "cache_prompt": False, "reference_texts": texts, "seed": 1}
    with pipeline.open_batch() as batch:
        for choice in range(4):
            batch.add(choice, PROMPT, **drawn, choice=choice)
        assert len(added) == 2
        while len(batch):
            batch.step()
    pipeline.generate(PROMPT, **drawn)
    assert len(added) == 4  # they are kept for as long as they are used


@pytest.mark.parametrize("times", [200, 20_000])
def test_reference_texts_fit_the_context(pipeline, times):
    with pytest.raises(OptionError, match=r"reference_texts=.* more tokens than the model's con"):
        pipeline.generate(PROMPT, reference_texts=["one two " * times])


@pytest.mark.parametrize("drafter", ["model", "both", "prompt-lookup", "none"])
def test_reference_texts_are_looked_into_beside_any_drafter(tiny_pair, plain, drafter):
    expected = plain()
    draft = tiny_pair[1] if drafter in ("model", "both") else None
    with SpeculativePipeline(tiny_pair[0], draft, drafter=drafter, precision="exact") as pipeline:
        result = pipeline.generate(PROMPT, reference_texts=expected.text, **OPTIONS)
        assert result.token_ids == expected.token_ids
        assert "suffix" in sources(result)
        if drafter != "both":
            others = pipeline.generate(PROMPT, **{**OPTIONS, "num_assistant_tokens": "auto"})
            assert "suffix" not in {round_.source for round_ in others.stats.rounds}


FILE = "".join(f'def area_{i}(w):\n\t"""Of {i * i} m."""\n\treturn w * {i}\n' for i in range(9))
WRITE = {"name": "write", "parameters": {"properties": {"text": {"type": "string"}}}}


def test_a_file_is_drafted_from_its_escaped_copy(agent_model, monkeypatch):
    written, found = called("write", text=FILE), []
    with SpeculativePipeline(agent_model, drafter="suffix", num_threads=1) as pipeline:
        options = {"tools": [WRITE], "num_assistant_tokens": 8, "max_new_tokens": 500}
        options["cache_prompt"] = False  # nothing is drafted from the first output
        options["logits_processor"] = [follow(pipeline.tokenizer, lambda _: written)]
        for _ in range(2):
            found.append(pipeline.generate([{"role": "user", "content": FILE}], **options))
            assert json.loads(found[-1].tool_calls[0].arguments) == {"text": FILE}
            monkeypatch.setattr(text_generator, "escaped_copy", lambda *_: [])
    passes = [result.stats.main_passes for result in found]
    assert passes[1] > 1.3 * passes[0]
