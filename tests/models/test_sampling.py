"""Sampling and logits processors through the Python interface, on a tiny pair."""

import numpy as np
import pytest

from ov_specdec import GenerationOptions, LogitsError, OptionError
from ov_specdec.sampling.processors import BadWords, LogitBias, MinNewTokens, RepetitionPenalty
from ov_specdec.sampling.samplers import make_samplers

PROMPT = "def area("
OPTIONS = {"max_new_tokens": 40, "ignore_eos": True}


def samplers(**options):
    return make_samplers(
        GenerationOptions(**options), prompt_length=3, eos_token_ids=frozenset([0])
    )


def test_without_a_seed_runs_differ(pipeline):
    runs = {tuple(pipeline.generate(PROMPT, temperature=1.5, **OPTIONS).token_ids) for _ in "abc"}
    assert len(runs) == 3


def test_processors_come_in_the_order_of_transformers():
    chain = samplers(
        min_new_tokens=2, bad_words_ids=[[1]], repetition_penalty=2.0, logit_bias={1: 1.0}
    )[0].processors
    kinds = [type(processor) for processor in chain]
    assert kinds == [LogitBias, RepetitionPenalty, BadWords, MinNewTokens]


def test_a_processor_may_write_to_what_it_is_given():
    def writes(tokens, logits):
        tokens.clear()
        logits[:] = -np.inf
        logits[3] = 0.0
        return logits

    tokens, row = [5, 6], np.arange(8, dtype=np.float32)
    assert samplers(logits_processor=[writes])[0].sample(tokens, row).token == 3
    assert (tokens, row.tolist()) == ([5, 6], list(range(8)))


def spoiling(value):
    def spoil(tokens, logits):
        return logits.astype(np.float64) + value

    return spoil


REFUSED = {
    "a short row": ([lambda tokens, row: row[:-1]], OptionError, "must return a row of logits of"),
    "no row": ([lambda tokens, row: None], OptionError, "must return a row of logits"),
    "a batch": ([lambda tokens, row: row[:, 0]], OptionError, r"failed \(too many.*a batch axis"),
    "no number": ([spoiling(np.nan)], LogitsError, r"logits_processor .*spoil.* returned nan"),
    "too much": ([spoiling(1e300)], LogitsError, r"logits_processor .*spoil.* returned 1e\+300"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_processor_that_returns_no_logits_is_named(pipeline, what):
    processors, error, message = REFUSED[what]
    with pytest.raises(error, match=message):
        pipeline.generate(PROMPT, logits_processor=processors)


def test_forbidding_everything_or_what_there_is_not_is_refused(pipeline):
    for options in ({}, {"do_sample": True}):
        with pytest.raises(LogitsError, match="no token may follow"):
            pipeline.generate(PROMPT, suppress_tokens=range(290), **options)
    for options in ({"logit_bias": {290: 1.0}}, {"bad_words_ids": [[1, 290]]}):
        with pytest.raises(OptionError, match=f"{next(iter(options))} holds token id 290"):
            pipeline.generate(PROMPT, **options)
