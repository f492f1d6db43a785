from hypothesis import given
from hypothesis import strategies as st

from ov_specdec.drafters import PromptLookup


def search(tokens, limit, max_size):
    """The definition, by brute force: longest suffix first, most recent occurrence first."""
    for size in range(min(max_size, len(tokens) - 1), 0, -1):
        suffix = tokens[-size:]
        for start in range(len(tokens) - size - 1, -1, -1):
            if tokens[start : start + size] == suffix:
                text = list(tokens)
                for _ in range(limit):
                    text.append(text[start + size + len(text) - len(tokens)])
                return text[len(tokens) :]
    return []


def test_proposes_what_followed_last_time():
    assert PromptLookup().propose([1, 2, 3, 4, 5, 1, 2], 3).tokens == [3, 4, 5]


def test_prefers_the_longest_match_to_the_most_recent():
    assert PromptLookup().propose([1, 2, 3, 9, 2, 7, 1, 2], 1).tokens == [3]


def test_prefers_the_most_recent_of_equal_matches():
    assert PromptLookup().propose([1, 2, 3, 1, 2, 4, 1, 2], 1).tokens == [4]


def test_goes_on_into_its_own_copy_where_the_text_repeats():
    assert PromptLookup().propose([7, 1, 2, 1, 2], 5).tokens == [1, 2, 1, 2, 1]


def test_has_no_idea_without_a_match():
    assert PromptLookup().propose([1, 2, 3], 5).tokens == []
    assert PromptLookup().propose([1], 5).tokens == []


def test_respects_its_own_limits():
    assert PromptLookup(max_candidates=1).propose([1, 2, 3, 1], 5).tokens == [2]
    # Bigrams would find [9]; unigrams find the most recent 2.
    assert PromptLookup(1).propose([1, 2, 9, 5, 2, 8, 1, 2], 1).tokens == [8]


def test_forgets_the_last_text():
    drafter = PromptLookup()
    drafter.propose([1, 2, 3], 5)
    drafter.reset()
    assert drafter.propose([9, 1], 5).tokens == []


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=40),
    st.lists(st.integers(1, 5), min_size=1, max_size=8),
    st.integers(1, 6),
    st.integers(1, 4),
)
def test_the_index_finds_what_a_search_finds_however_the_text_grew(tokens, steps, limit, max_size):
    drafter = PromptLookup(max_size)
    length = 0
    for step in steps:
        length = min(len(tokens), length + step)
        assert drafter.propose(tokens[:length], limit).tokens == search(
            tokens[:length], limit, max_size
        )
