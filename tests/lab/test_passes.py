"""Passes of the figures: each has as many tokens as its name says."""

import pytest

from lab.benchmarks.figures.passes import SEQUENCES, SIZES, Sequences
from ov_specdec import SpeculativePipeline


@pytest.mark.parametrize("form", ["auto", False])
def test_a_pass_feeds_the_tokens_that_it_is_named_after(tiny_pair, monkeypatch, form):
    with SpeculativePipeline(
        tiny_pair[0], batch_invariant=form, max_batch_size=SEQUENCES, static_shapes="none"
    ) as pipeline:
        runner, fed = pipeline.main.runner, []
        assert runner.separates_generated is (form == "auto")
        sequences = Sequences(pipeline, list(range(260)), 40)
        forward = runner.forward
        monkeypatch.setattr(
            runner,
            "forward",
            lambda spans: fed.append(sum(len(span.tokens) for span in spans)) or forward(spans),
        )
        for size in SIZES:
            sequences.one(size)
        assert fed == [size for size in SIZES for _ in range(2)]
        fed.clear()
        sequences.each()
        assert fed == [SEQUENCES] * 2
        sequences.discard()
