"""Prompts that are answered together, step by step; `tests/golden` has what they are answered."""

import pytest

from ov_specdec import OptionError, SpeculativePipeline


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


def test_a_batch_that_is_closed_ends_its_prompts_and_holds_no_place(pipeline):
    with pipeline.open_batch() as batch:
        for key in (1, 2):
            batch.add(key, "def f(x):", max_new_tokens=200, ignore_eos=True)
        batch.step()
        batch.add(3, "x")  # not even begun
    assert (len(batch), batch.step()) == (0, [])
    with pipeline.open_batch() as batch:
        batch.add(1, [5, 6], max_new_tokens=3, ignore_eos=True)
        assert read(batch)[1][-1].stats.generated_tokens == 3
