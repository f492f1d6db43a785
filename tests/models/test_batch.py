"""Prompts that come one after the other and are answered together, step by step."""

import pytest

from ov_specdec import OptionError, SpeculativePipeline

PROMPTS = ["def f(x):", [5, 6, 7, 8], "class A:\n    "]


@pytest.fixture(scope="module")
def pipeline(tiny_pair):
    with SpeculativePipeline(*tiny_pair, precision="exact", max_batch_size=2) as models:
        yield models


def read(batch, num_steps=10**6):
    """What so many steps of a batch return, by key; all of them until every prompt has ended."""
    news = {}
    while batch and (num_steps := num_steps - 1) >= 0:
        for key, piece in batch.step():
            news.setdefault(key, []).append(piece)
    return news


def test_prompts_that_come_later_are_answered_as_they_are_alone(pipeline):
    options = {"max_new_tokens": 12, "ignore_eos": True, "num_assistant_tokens": 2}
    alone = [pipeline.generate(prompt, **options) for prompt in PROMPTS]
    with pipeline.open_batch() as batch:
        batch.add("first", PROMPTS[0], **options)
        early = read(batch, 2)
        for number in (1, 2):
            batch.add(number, PROMPTS[number], **options)
        assert len(batch) == 3
        late = read(batch)
    chunks = [early["first"] + late["first"], late[1], late[2]]
    assert [[t for c in own for t in c.token_ids] for own in chunks] == [r.token_ids for r in alone]
    assert ["".join(c.text for c in own) for own in chunks] == [r.text for r in alone]
    assert [own[-1].finish_reason for own in chunks] == ["length"] * 3
    assert len(batch) == 0
    assert batch.step() == []


def test_an_error_ends_one_prompt_and_leaves_the_others(pipeline):
    def fails(ids, logits):
        if len(ids) > 6:
            raise ZeroDivisionError("on purpose")
        return logits

    with pipeline.open_batch() as batch:
        batch.add("fails", [5, 6, 7, 8], logits_processor=[fails])
        batch.add("goes on", [5, 6, 7, 8], max_new_tokens=12, ignore_eos=True)
        with pytest.raises(OptionError, match="key='fails' is the key of an open prompt"):
            batch.add("fails", "x")
        with pytest.raises(OptionError, match="max_new_tokens=0"):
            batch.add("refused", "x", max_new_tokens=0)
        news = read(batch)
    assert isinstance(news["fails"][-1], ZeroDivisionError)
    assert news["goes on"][-1].stats.generated_tokens == 12
    assert set(news) == {"fails", "goes on"}


def test_a_prompt_is_cancelled_and_the_rest_with_the_batch(pipeline):
    with pipeline.open_batch() as batch:
        batch.add(1, "def f(x):", max_new_tokens=200, ignore_eos=True)
        batch.add(2, "class A:", max_new_tokens=200, ignore_eos=True)
        batch.step()
        batch.cancel(1)
        assert read(batch, 1)[1][-1].finish_reason == "cancelled"
        assert len(batch) == 1
        batch.add(3, "x")  # not even begun
    assert len(batch) == 0
    assert batch.step() == []
    with pipeline.open_batch() as batch:  # what was closed holds no place
        batch.add(1, [5, 6], max_new_tokens=3, ignore_eos=True)
        assert read(batch)[1][-1].stats.generated_tokens == 3
