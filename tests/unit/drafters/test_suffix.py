"""The suffix drafter: where its draft tokens come from, and how it asks for their number."""

from hypothesis import given
from hypothesis import strategies as st

from ov_specdec.drafters.suffix import SuffixDrafter
from ov_specdec.drafters.suffix_index import SuffixIndex
from ov_specdec.planning.draft_length import ConstantLength, Offer, Plan
from tests.support import running
from tests.support.fakes import ScriptedModel, mixing


def propose(drafter, tokens, limit=5):
    return running.propose(drafter, tokens, lambda ask: Plan(limit, "constant"))


def earlier(*texts):
    index = SuffixIndex()
    for text in texts:
        index.add(text)
    return lambda: [index]


def test_proposes_what_followed_the_longest_match():
    proposal = propose(SuffixDrafter(), [1, 2, 3, 4, 8, 9, 5, 3, 4, 7, 1, 2, 3, 4], 2)
    assert proposal.draft.tokens == [8, 9]
    assert proposal.draft.probs is None  # they count as certain


def test_has_no_idea_without_a_match():
    assert SuffixDrafter().offers([1, 2, 3]) == []


@given(st.lists(st.integers(0, 3), min_size=1, max_size=40), st.lists(st.integers(1, 5)))
def test_follows_the_sequence_however_it_grows(tokens, steps):
    drafter, length = SuffixDrafter(), 0
    for step in steps:
        length = min(len(tokens), length + step)
        fresh = propose(SuffixDrafter(), tokens[:length])
        assert propose(drafter, tokens[:length]) == fresh


def test_finds_draft_tokens_in_reference_texts():
    drafter = SuffixDrafter(references=SuffixIndex([[1, 2, 3, 4], [5, 6]]))
    assert propose(drafter, [9, 2]).draft.tokens == [3, 4]
    assert propose(drafter, [9, 2, 5]).draft.tokens == [6]
    assert propose(drafter, [9, 2, 5, 4]).draft.tokens == []  # the first text ends there


def test_finds_draft_tokens_in_earlier_outputs():
    drafter = SuffixDrafter(earlier=earlier([1, 2, 3, 4]))
    assert [offer.source for offer in drafter.offers([1, 2])] == ["earlier"]
    assert propose(drafter, [1, 2]).draft.tokens == [3, 4]


def test_a_match_in_an_earlier_output_counts_half():
    drafter = SuffixDrafter(earlier=earlier([3, 4, 8], [1, 2, 3, 4, 5, 9]))
    assert propose(drafter, [4, 7, 0, 3, 4]).draft.tokens[0] == 7
    drafter = SuffixDrafter(earlier=earlier([3, 4, 8], [1, 2, 3, 4, 5, 9]))
    assert propose(drafter, [5, 7, 3, 4, 5]).draft.tokens == [9]


def test_offers_the_longest_match_with_its_first_token():
    assert SuffixDrafter().offers([1, 2, 1]) == [Offer("suffix", 1 / 2, 2)]
    drafter = SuffixDrafter(earlier=earlier([1, 2, 3]))
    assert drafter.offers([1, 2]) == [Offer("earlier", 2 / 3, 3)]


def test_output_is_that_of_plain_decoding():
    def next_token(tokens):  # repeats itself in places
        return mixing(3)(tokens[-4:]) % 7

    expected = running.plain(ScriptedModel(next_token), [1, 2, 3], 120)
    drafter = SuffixDrafter([[5, 6, 1]], earlier(expected.tokens[20:60]))
    main, policy = ScriptedModel(next_token), ConstantLength(3)
    text = running.sequence(main, [1, 2, 3], 120, drafter, policy)
    rounds = list(running.rounds(text))
    assert text.tokens == expected.tokens
    assert {round_.stats.source for round_ in rounds} >= {"suffix", "earlier"}
    assert sum(round_.stats.num_accepted for round_ in rounds) > 0
