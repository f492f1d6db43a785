"""Sampling and logits processors through the Python interface, on a tiny pair."""

import re

import numpy as np
import pytest

from ov_specdec import GenerationOptions, LogitsError, OptionError, SpeculativePipeline
from ov_specdec.sampling.from_options import make_samplers
from ov_specdec.sampling.processors import BadWords, LogitBias, MinNewTokens, RepetitionPenalty
from ov_specdec.sampling.samplers import GreedySampler, RandomSampler
from ov_specdec.sampling.warpers import LogitsWarper

PROMPT = "def area("
OPTIONS = {"max_new_tokens": 40, "ignore_eos": True}


def samplers(**options):
    return make_samplers(
        GenerationOptions(**options), prompt_length=3, eos_token_ids=frozenset([0])
    )


def no_odd_tokens(tokens, logits):
    """A processor of a user's own."""
    logits = logits.copy()
    logits[1::2] = -np.inf
    return logits


PROCESSORS = {
    "repetition_penalty": {"repetition_penalty": 1.5},
    "presence_penalty": {"presence_penalty": 1.0},
    "frequency_penalty": {"frequency_penalty": 0.7},
    "logit_bias": {"logit_bias": {17: 2.0, 30: float("-inf")}},
    "bad_words_ids": {"bad_words_ids": [[230], [45, 189]]},
    "suppress_tokens": {"suppress_tokens": list(range(50, 200))},
    "no_repeat_ngram_size": {"no_repeat_ngram_size": 2},
    "logits_processor": {"logits_processor": [no_odd_tokens]},
    "all": {
        "repetition_penalty": 1.2,
        "presence_penalty": 0.5,
        "frequency_penalty": 0.2,
        "logit_bias": {17: 1.0},
        "bad_words_ids": [[5]],
        "suppress_tokens": [50, 51],
        "no_repeat_ngram_size": 3,
        "logits_processor": [no_odd_tokens],
    },
}


@pytest.fixture(scope="module", params=["paged", "stateful"])
def pipeline(request, tiny_pair):
    return SpeculativePipeline(*tiny_pair, kv=request.param, precision="exact")


@pytest.mark.parametrize("name", PROCESSORS)
def test_greedy_with_processors_equals_plain_greedy_with_them(pipeline, name):
    options = {**OPTIONS, **PROCESSORS[name]}
    plain = pipeline.generate(PROMPT, num_assistant_tokens=0, **options)
    assert plain.token_ids != pipeline.generate(PROMPT, **OPTIONS).token_ids, "it had no effect"
    for length in (1, 3, 6):
        result = pipeline.generate(PROMPT, num_assistant_tokens=length, **options)
        assert result.token_ids == plain.token_ids
        assert result.stats.accepted > 0, "the draft sees the processors too"


def test_prompt_lookup_sees_the_processors(tiny_pair, pipeline):
    lookup = SpeculativePipeline(tiny_pair[0], drafter="prompt-lookup", precision="exact")
    for options in ({**OPTIONS, **PROCESSORS[name]} for name in PROCESSORS):
        expected = pipeline.generate(PROMPT, num_assistant_tokens=0, **options).token_ids
        assert lookup.generate(PROMPT, **options).token_ids == expected


def test_min_new_tokens_holds_the_end_back(pipeline):
    full = pipeline.generate(PROMPT, **OPTIONS).token_ids
    eos = full[4]
    for length in (0, 3):
        options = {"eos_token_id": eos, "max_new_tokens": 40, "num_assistant_tokens": length}
        early = pipeline.generate(PROMPT, **options)
        late = pipeline.generate(PROMPT, min_new_tokens=10, **options)
        assert len(early.token_ids) <= 5
        assert len(late.token_ids) >= 10
        assert eos not in late.token_ids[:10]


def test_a_seed_makes_a_run_repeat_and_streaming_is_the_same_run(pipeline):
    options = {**OPTIONS, "temperature": 1.2, "seed": 7}
    first, second = (pipeline.generate(PROMPT, **options) for _ in range(2))
    assert first.token_ids == second.token_ids
    streamed = [t for chunk in pipeline.stream(PROMPT, **options) for t in chunk.token_ids]
    assert streamed == first.token_ids
    other = pipeline.generate(PROMPT, **{**options, "seed": 8})
    assert other.token_ids != first.token_ids


def test_without_a_seed_runs_differ(pipeline):
    runs = {tuple(pipeline.generate(PROMPT, temperature=1.5, **OPTIONS).token_ids) for _ in "abc"}
    assert len(runs) == 3


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 1e-4},
        {"top_k": 1},
        {"top_p": 0.0},
        {"min_p": 1.0},
        {"temperature": 1e-4, "assistant_do_sample": False},
    ],
)
def test_sampling_without_a_choice_is_greedy(pipeline, options):
    greedy = pipeline.generate(PROMPT, **OPTIONS)
    assert pipeline.generate(PROMPT, **OPTIONS, **options).token_ids == greedy.token_ids


@pytest.mark.parametrize("assistant_do_sample", [True, False])
def test_draft_tokens_of_a_sampled_run_are_accepted_and_rejected(
    tiny_pair, wide_draft, assistant_do_sample
):
    # A draft that draws as nearly the same model would have all of its draft tokens accepted, and
    # one that takes the most likely tokens of quite another model none.
    draft = wide_draft if assistant_do_sample else tiny_pair[1]
    pipeline = SpeculativePipeline(tiny_pair[0], draft)
    accepted = drafted = 0
    for temperature in (0.5, 1.0, 2.0, 4.0):
        options = {**OPTIONS, "temperature": temperature, "seed": 1, "num_assistant_tokens": 3}
        stats = pipeline.generate(PROMPT, assistant_do_sample=assistant_do_sample, **options).stats
        accepted += stats.accepted
        drafted += stats.drafted
    assert 0 < accepted < drafted


def test_options_become_rules():
    assert samplers() == (GreedySampler(ends=frozenset([0])),) * 2
    assert samplers(temperature=0.5, top_k=3)[0].warper == LogitsWarper(temperature=0.5, top_k=3)
    sampled = samplers(do_sample=True)
    assert sampled[1] is sampled[0]
    assert isinstance(samplers(do_sample=True, assistant_do_sample=False)[1], GreedySampler)
    assert isinstance(samplers(top_p=0.5)[0], RandomSampler)


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


def test_a_processor_that_returns_no_row_is_refused(pipeline):
    with pytest.raises(OptionError, match="must return a row of logits of shape"):
        pipeline.generate(PROMPT, logits_processor=[lambda tokens, logits: logits[:-1]])
    with pytest.raises(OptionError, match="must return a row of logits"):
        pipeline.generate(PROMPT, logits_processor=[lambda tokens, logits: None])


def test_a_processor_for_a_batch_learns_that_there_is_none(pipeline):
    with pytest.raises(OptionError, match=r"failed \(too many indices.*without a batch axis"):
        pipeline.generate(PROMPT, logits_processor=[lambda tokens, logits: logits[:, 0]])


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
def test_a_processor_whose_logits_give_no_distribution_is_named(pipeline, value):
    def spoil(tokens, logits):
        return logits.astype(np.float64) + value

    message = rf"logits_processor .*spoil.* returned {re.escape(str(value))}"
    with pytest.raises(LogitsError, match=message):
        pipeline.generate(PROMPT, logits_processor=[spoil])


@pytest.mark.parametrize("sampling", [{}, {"temperature": 1.0}, {"temperature": 0.7, "seed": 1}])
@pytest.mark.parametrize("penalty", [1e-6, 1e6])
@pytest.mark.parametrize("bias", [1e30, -1e30])
def test_the_greatest_options_together_give_a_text(pipeline, sampling, penalty, bias):
    options = {"repetition_penalty": penalty, "logit_bias": {5: bias, 6: -bias}, **sampling}
    result = pipeline.generate(PROMPT, max_new_tokens=8, ignore_eos=True, **options)
    assert len(result.token_ids) == 8


@pytest.mark.parametrize("options", [{}, {"do_sample": True}])
def test_forbidding_everything_is_refused(pipeline, options):
    with pytest.raises(LogitsError, match="no token may follow"):
        pipeline.generate(PROMPT, suppress_tokens=range(290), **options)


def test_an_id_beyond_the_vocabulary_is_refused(pipeline):
    for options in ({"logit_bias": {290: 1.0}}, {"bad_words_ids": [[1, 290]]}):
        with pytest.raises(OptionError, match=f"{next(iter(options))} holds token id 290"):
            pipeline.generate(PROMPT, **options)
