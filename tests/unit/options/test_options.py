import numpy as np
import pytest

from ov_specdec import GenerationOptions, OptionError
from ov_specdec.generation.pipeline_options import PipelineOptions
from ov_specdec.planning.policies import (
    ConstantLength,
    HeuristicLength,
    LearnedStats,
    PlannedLength,
    make_policy,
)
from ov_specdec.results.stats import RoundStats
from tests.support.fakes import ScriptedModel, counting


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (
            {"max_new_tokens": 0},
            "max_new_tokens=0 only scores a prompt, so it needs prompt_logprobs",
        ),
        ({"max_new_tokens": True}, "max_new_tokens=True"),
        ({"num_assistant_tokens": "many"}, "='many' must be a whole number from 0 to 256, or auto"),
        ({"num_assistant_tokens_schedule": "constant"}, "needs a number"),
        (
            {"num_assistant_tokens_schedule": "adaptive", "num_assistant_tokens": 3},
            "num_assistant_tokens=3 has no effect",
        ),
        ({"reference_texts": ["a", 7]}, "reference_texts=7 must be a text"),
        (
            {"reference_texts": ["a", "\udce4"]},
            "reference_texts is not valid text: give it as UTF-8",
        ),
        ({"stop_strings": ""}, "stop_strings='' must be a text that is not empty"),
        ({"min_new_tokens": 200, "max_new_tokens": 128}, "=200 is more than max_new_tokens=128"),
        ({"temperature": 0, "do_sample": True}, "temperature=0.0 .* contradicts do_sample=True"),
        ({"temperature": float("nan")}, "temperature=nan"),
        ({"typical_p": 0}, "typical_p=0 must be a number above 0, up to 1"),
        ({"choice": 1}, "choice=1 has no effect without seed: give both"),
        ({"do_sample": False, "top_k": 5}, "top_k=5 has no effect with do_sample=False"),
        ({"repetition_penalty": 1e7}, "repetition_penalty=10000000.0 must be a number from 1e-06"),
        ({"logit_bias": {1: float("inf")}}, r"logit_bias=inf must be a mapping .* or -inf"),
        ({"bad_words_ids": [[]]}, "none empty"),
        ({"encoder_no_repeat_ngram_size": 1.5}, "encoder_no_repeat_ngram_size=1.5 must be a whole"),
        ({"logits_processor": [3]}, "logits_processor=.* must be a list of functions"),
        ({"max_new_token": 5}, "unknown option 'max_new_token': did you mean max_new_tokens"),
        ({"zzz": 5}, "unknown option 'zzz': there are: max_new_tokens"),
        ({"max_new_tokens": np.bool_(True)}, "max_new_tokens=True must be a whole number"),
        ({"max_new_tokens": np.float64(8)}, "max_new_tokens=8.0 must be a whole number"),
        ({"do_sample": np.int64(1)}, "do_sample=1 must be True or False"),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(options, complaint):
    with pytest.raises(OptionError, match=complaint):
        GenerationOptions(**options)


def test_what_can_be_read_only_once_is_kept():
    options = GenerationOptions(stop_strings=(c for c in "ab"), suppress_tokens=iter([1, 2]))
    assert options.stop_strings == ("a", "b")
    assert tuple(options.suppress_tokens) == (1, 2)


def test_numbers_may_be_numpys_and_become_pythons():
    given = {
        "max_new_tokens": np.int64(8),
        "eos_token_id": np.array([2, 3]),
        "do_sample": np.bool_(True),
        "temperature": np.float32(0.5),
        "seed": np.uint64(2**63),
        "logit_bias": {np.int32(5): np.float32(-1)},
        "bad_words_ids": [np.array([1, 2]), (np.int64(3),)],
    }
    options = GenerationOptions(**given)
    expected = {
        "max_new_tokens": 8,
        "eos_token_id": (2, 3),
        "do_sample": True,
        "temperature": 0.5,
        "seed": 2**63,
        "logit_bias": {5: -1.0},
        "bad_words_ids": [[1, 2], (3,)],
    }
    stored = {name: getattr(options, name) for name in expected}
    assert repr(stored) == repr(expected)


def test_properties_may_be_numbers_and_booleans_as_in_openvino():
    own = {"INFERENCE_NUM_THREADS": np.int64(2), "ENABLE_CPU_PINNING": True, "PERF_COUNT": False}
    texts = {"INFERENCE_NUM_THREADS": "2", "ENABLE_CPU_PINNING": "YES", "PERF_COUNT": "NO"}
    rate = {"CPU_SPARSE_WEIGHTS_DECOMPRESSION_RATE": 0.5}
    main, draft = PipelineOptions(properties=own, draft_properties=rate).configs
    assert main == PipelineOptions(properties=texts).configs[0]
    assert draft.properties == texts | {"CPU_SPARSE_WEIGHTS_DECOMPRESSION_RATE": "0.5"}


def test_ignore_eos_leaves_no_token_that_ends_the_text():
    own = frozenset({7})
    assert GenerationOptions().ending_ids(own) == own
    assert GenerationOptions(eos_token_id=2, stop_token_ids=[3]).ending_ids(own) == {2, 3}
    assert GenerationOptions(ignore_eos=True, stop_token_ids=[3]).ending_ids(own) == {3}
    with pytest.raises(
        OptionError, match=r"eos_token_id=\(2,\) has no effect with ignore_eos=True"
    ):
        GenerationOptions(eos_token_id=2, ignore_eos=True)


@pytest.mark.parametrize(
    ("options", "policy"),
    [
        ({"num_assistant_tokens_schedule": "heuristic"}, HeuristicLength(5)),
        ({"num_assistant_tokens": 3}, ConstantLength(3)),
        ({"num_assistant_tokens": 0}, ConstantLength(0)),
    ],
)
def test_draft_length_options_choose_the_policy(options, policy):
    options = GenerationOptions(**options)
    assert make_policy(options, LearnedStats(), ScriptedModel(counting)) == policy


@pytest.mark.parametrize(
    ("options", "samples"),
    [
        ({}, False),
        ({"repetition_penalty": 2.0}, False),
        ({"temperature": 0.5}, True),
        ({"temperature": 0}, False),
        ({"temperature": 0.0, "top_p": 0.5}, False),
        ({"seed": 0}, False),
        ({"do_sample": True}, True),
        ({"do_sample": False}, False),
    ],
)
def test_tokens_are_drawn_where_an_option_asks_for_it(options, samples):
    assert GenerationOptions(**options).samples is samples


@pytest.mark.parametrize("is_verified", [False, True])
def test_lengths_follow_costs_unless_given_or_a_text_must_repeat(is_verified):
    main = ScriptedModel(counting)
    main.is_verified = is_verified

    def follows(**options):
        policy = make_policy(GenerationOptions(**options), LearnedStats(), main)
        return isinstance(policy, PlannedLength)

    assert follows()
    assert follows(seed=1)
    assert follows(temperature=0.5)
    assert follows(temperature=0.5, seed=1) is is_verified
    assert not follows(num_assistant_tokens=4)
    assert not follows(num_assistant_tokens_schedule="heuristic")


def test_seeded_drafts_teach_the_next_seeded_ones():
    main, learned = ScriptedModel(counting), LearnedStats()
    main.is_verified = True
    for options in ({}, {"temperature": 1.0}, {"temperature": 1.0, "seed": 1}):
        policy = make_policy(GenerationOptions(**options), learned, main)
        num_drafted = 1 + len(options)
        counts = num_drafted, num_drafted, num_drafted + 1
        policy.update(RoundStats(*counts, 0.0, 0.0, 0.0, 0.0, source="model"))
    rates = [learned.counts[kind].share(("model", None), 0.0, 1.0) for kind in learned.counts]
    assert rates == pytest.approx([1 / 2, 2 / 3, 3 / 4], abs=0.01)


def test_a_copy_with_other_values_checks_nothing_and_shares_lists():
    options = GenerationOptions(seed=1, suppress_tokens=[3, 4])
    other = options.copy_with(choice=2)
    assert (options.choice, other.choice) == (0, 2)
    assert other == GenerationOptions(seed=1, suppress_tokens=[3, 4], choice=2)
    assert other.suppress_tokens is options.suppress_tokens
