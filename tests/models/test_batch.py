"""Prompts that are answered together, step by step; `tests/golden` has what they are answered."""

import pytest

from ov_specdec import OptionError, SpeculativePipeline


@pytest.fixture(scope="module")
def pipeline(tiny_pair):
    with SpeculativePipeline(*tiny_pair, precision="exact", max_batch_size=2) as models:
        yield models


def test_a_batch_that_is_closed_ends_its_prompts_and_holds_no_place(pipeline):
    with pipeline.open_batch() as batch:
        for key in (1, 2):
            batch.add(key, "def f(x):", max_new_tokens=200, ignore_eos=True)
        batch.step()
        batch.add(3, "x")  # not even begun
        for key, options in ((3, {}), (4, {"max_new_tokens": 0})):
            with pytest.raises(OptionError, match=r"key=3 is the key of an|max_new_tokens=0"):
                batch.add(key, "x", **options)
        assert len(batch) == 3
    assert (len(batch), batch.step()) == (0, [])
    with pipeline.open_batch() as batch:
        batch.add(1, [5, 6], max_new_tokens=3, ignore_eos=True)
        chunks = [chunk for _ in range(9) for _, chunk in batch.step()]
        assert chunks[-1].stats.generated_tokens == 3
