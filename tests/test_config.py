import pytest

from ov_specdec import GenerationOptions, OptionError
from ov_specdec.policy import ConstantLength, HeuristicLength


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"max_new_tokens": 0}, "max_new_tokens=0 must be a whole number, at least 1"),
        ({"max_new_tokens": -5}, "max_new_tokens=-5"),
        ({"max_new_tokens": 2.5}, "max_new_tokens=2.5"),
        ({"max_new_tokens": True}, "max_new_tokens=True"),
        ({"num_assistant_tokens": -1}, "num_assistant_tokens=-1 .* from 0 to 256"),
        ({"num_assistant_tokens": 257}, "num_assistant_tokens=257"),
        ({"num_assistant_tokens": "many"}, "num_assistant_tokens='many'"),
        ({"num_assistant_tokens_schedule": "wild"}, "'wild' is not one of heuristic, constant"),
        ({"num_assistant_tokens_schedule": "constant"}, "needs a number"),
        ({"prompt_lookup_num_tokens": 0}, "prompt_lookup_num_tokens=0"),
        ({"max_matching_ngram_size": 0}, "max_matching_ngram_size=0"),
        ({"eos_token_id": -1}, "eos_token_id=-1"),
        ({"eos_token_id": [1, "x"]}, "eos_token_id='x'"),
        ({"stop_strings": ""}, "none empty"),
        ({"stop_strings": ["a", ""]}, "none empty"),
        ({"stop_strings": 7}, "stop_strings=7"),
        ({"max_new_token": 5}, "unknown option 'max_new_token': did you mean max_new_tokens"),
        ({"zzz": 5}, "unknown option 'zzz': there are: max_new_tokens"),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(options, complaint):
    with pytest.raises(OptionError, match=complaint):
        GenerationOptions.from_kwargs(options)


def test_one_value_or_several_are_the_same_to_the_user():
    assert GenerationOptions(stop_strings="END").stops == ("END",)
    assert GenerationOptions(stop_strings=["a", "b"]).stops == ("a", "b")
    assert GenerationOptions(eos_token_id=2).eos_token_ids == {2}
    assert GenerationOptions(eos_token_id=[2, 3]).eos_token_ids == {2, 3}


def test_ignore_eos_leaves_no_token_that_ends_the_text():
    assert GenerationOptions().eos_token_ids is None  # the model's own
    assert GenerationOptions(eos_token_id=2, ignore_eos=True).eos_token_ids == frozenset()


@pytest.mark.parametrize(
    ("options", "policy"),
    [
        ({}, HeuristicLength(5)),
        ({"num_assistant_tokens": 3}, ConstantLength(3)),
        (
            {"num_assistant_tokens": 3, "num_assistant_tokens_schedule": "heuristic"},
            HeuristicLength(3),
        ),
        ({"num_assistant_tokens": 0}, ConstantLength(0)),
    ],
)
def test_draft_length_options_choose_the_policy(options, policy):
    assert GenerationOptions(**options).policy() == policy
