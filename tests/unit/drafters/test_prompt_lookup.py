import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from ov_specdec.drafters.prompt_lookup import PromptLookup
from ov_specdec.planning.draft_length import Offer, Plan
from tests.support import running


def propose(drafter, tokens, limit):
    return running.propose(drafter, tokens, lambda ask: Plan(limit, "constant"))


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


def test_respects_its_own_limit():
    assert propose(PromptLookup(max_draft_tokens=1), [1, 2, 3, 1], 5).draft.tokens == [2]


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=40),
    st.lists(st.integers(1, 5), min_size=1, max_size=8),
    st.integers(1, 6),
    st.integers(1, 4),
)
def test_the_index_finds_what_a_search_finds_however_a_text_grew(tokens, steps, limit, max_size):
    drafter = PromptLookup(max_size)
    length = 0
    for step in steps:
        length = min(len(tokens), length + step)
        assert propose(drafter, tokens[:length], limit).draft.tokens == search(
            tokens[:length], limit, max_size
        )


def test_is_the_more_confident_the_longer_the_match():
    def confidence_after(*tokens):
        return [offer.confidence for offer in PromptLookup().offers(tokens)]

    assert confidence_after(1, 9, 2, 1) == [1 / 2]
    assert confidence_after(5, 1, 9, 2, 5, 1) == [2 / 3]


def test_offers_a_match_with_its_first_token():
    assert PromptLookup().offers([1, 2, 1]) == [Offer("prompt-lookup", 1 / 2, 2)]
    assert PromptLookup().offers([1, 2, 3]) == []
    assert PromptLookup().caches == ()


def test_a_long_text_and_long_matches_take_no_memory_besides_its_ids():
    tokens = list(range(10_000)) * 2
    tracemalloc.start()
    try:
        drafter = PromptLookup(32, tokens=tokens)
        assert propose(drafter, tokens, 3).confidences == (32 / 33,) * 3
        assert tracemalloc.get_traced_memory()[1] < 100 * len(tokens)
    finally:
        tracemalloc.stop()
