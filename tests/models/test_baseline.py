"""Plain decoding as the baseline."""

import pytest

from ov_specdec import GenerationOptions
from ov_specdec.cache import common_prefix
from ov_specdec.options.generation import PLAIN


@pytest.mark.parametrize(
    ("tokens", "others", "expected"),
    [([1, 2, 3], [1, 2, 3], 3), ([1, 2, 3], [1, 5, 3], 1), ([1, 2], [1, 2, 3], 2), ([], [1], 0)],
)
def test_outputs_part_at_the_first_difference_or_where_one_ends(tokens, others, expected):
    assert common_prefix(tokens, others) == expected
    assert common_prefix(others, tokens) == expected


def test_plain_options_switch_off_every_schedule():
    options = {"num_assistant_tokens": 4, "num_assistant_tokens_schedule": "constant", **PLAIN}
    assert GenerationOptions(**options).num_assistant_tokens == 0
