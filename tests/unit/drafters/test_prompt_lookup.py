import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from ov_specdec.drafters.prompt_lookup import PromptLookup
from tests.support.running import propose


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


def test_a_long_text_and_long_matches_take_no_memory_besides_its_ids():
    tokens = list(range(10_000)) * 2
    tracemalloc.start()
    try:
        drafter = PromptLookup(32, tokens=tokens)
        assert propose(drafter, tokens, 3).confidences == (32 / 33,) * 3
        assert tracemalloc.get_traced_memory()[1] < 100 * len(tokens)
    finally:
        tracemalloc.stop()
