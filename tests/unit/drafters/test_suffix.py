"""The suffix drafter: where its draft tokens come from, and how it asks for their number."""

from hypothesis import given
from hypothesis import strategies as st

from ov_specdec.drafters.suffix import SuffixDrafter
from ov_specdec.drafters.suffix_index import SuffixIndex
from tests.support.running import propose


def earlier(*texts):
    index = SuffixIndex()
    for text in texts:
        index.add(text)
    return lambda: [index]


@given(st.lists(st.integers(0, 3), min_size=1, max_size=40), st.lists(st.integers(1, 5)))
def test_follows_the_sequence_however_it_grows(tokens, steps):
    drafter, length = SuffixDrafter(), 0
    for step in steps:
        length = min(len(tokens), length + step)
        fresh = propose(SuffixDrafter(), tokens[:length])
        assert propose(drafter, tokens[:length]) == fresh


def test_a_match_in_an_earlier_output_counts_half():
    drafter = SuffixDrafter(earlier=earlier([3, 4, 8], [1, 2, 3, 4, 5, 9]))
    assert propose(drafter, [4, 7, 0, 3, 4]).draft.tokens[0] == 7
    drafter = SuffixDrafter(earlier=earlier([3, 4, 8], [1, 2, 3, 4, 5, 9]))
    assert propose(drafter, [5, 7, 3, 4, 5]).draft.tokens == [9]
