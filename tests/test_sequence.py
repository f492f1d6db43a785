"""A cache that knows its tokens: what it reads again, what it keeps, what errors leave."""

from threading import Event

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ov_specdec import SessionError
from ov_specdec.cache.sequence import PREFILL_CHUNK, CachedSequence, Cancelled
from tests.fakes import ScriptedSession, counting, mixing

TEXT = [3, 1, 4, 1, 5, 9, 2, 6]


class Failing(ScriptedSession):
    """A session whose passes fail on demand, and then hold what they held, or nothing."""

    def __init__(self, next_token, forgets):
        super().__init__(next_token)
        self._forgets = forgets
        self.fails_in: int | None = None

    def forward(self, tokens, num_rows=None):
        if self.fails_in is not None:
            self.fails_in -= 1
            if self.fails_in < 0:
                self.fails_in = None
                if self._forgets:
                    self.reset()
                raise RuntimeError("the device is gone")
        return super().forward(tokens, num_rows)


def started(text=TEXT):
    session = ScriptedSession(mixing(1), max_length=5000)
    cache = CachedSequence(session)
    cache.begin(text)
    cache.advance(text)
    return cache, session


def test_it_empties_the_session_that_it_takes_over():
    session = ScriptedSession(counting)
    session.forward([1, 2])
    assert CachedSequence(session).tokens == session.cache == []


def test_what_was_added_is_fed():
    cache, session = started()
    done = cache.advance([*TEXT, 7, 7])
    assert (session.passes, done.num_tokens) == ([8, 2], 2)
    assert cache.tokens == session.cache == [*TEXT, 7, 7]


class Compared(list):
    """A sequence that remembers from where on it was read at first."""

    def __getitem__(self, index):
        self.read_from = getattr(self, "read_from", index.start)  # the first time
        return super().__getitem__(index)


def test_only_what_was_added_is_compared():
    cache, _ = started()
    longer = Compared([*TEXT, 7, 7])
    cache.advance(longer, [8])
    assert longer.read_from == len(TEXT)


def test_tokens_that_an_interrupt_left_uncounted_are_rolled_back():
    cache, session = started()
    session.forward([7])  # the interrupt came before its return was seen
    assert cache.advance([*TEXT, 8]).num_tokens == 1
    assert session.cache == [*TEXT, 8]


def test_there_is_a_row_for_each_candidate_and_one_after_them():
    cache, _ = started()
    rows = cache.advance([*TEXT, 7], [8, 9]).logits
    expected = [mixing(1)([*TEXT, 7]), mixing(1)([*TEXT, 7, 8]), mixing(1)([*TEXT, 7, 8, 9])]
    assert rows.argmax(axis=1).tolist() == expected
    np.testing.assert_array_equal(cache.advance([*TEXT, 7], [8, 9], num_rows=1).logits, rows[-1:])


def test_accepted_candidates_are_not_fed_again_and_rejected_ones_are_rolled_back():
    cache, session = started()
    cache.advance([*TEXT, 7], [8, 9, 10])
    done = cache.advance([*TEXT, 7, 8, 0])  # 8 accepted, 9 replaced by 0
    assert (done.num_tokens, session.rollbacks) == (1, [len(TEXT) + 2])
    assert session.cache == [*TEXT, 7, 8, 0]


def test_another_sequence_keeps_what_both_begin_with():
    cache, session = started()
    other = [*TEXT[:5], 0, 0, 0, 0]
    cache.begin(other)
    assert cache.tokens == session.cache == TEXT[:5]
    assert cache.advance(other).num_tokens == 4
    assert session.cache == other


def test_the_last_token_is_fed_again_where_it_is_cached_already():
    cache, session = started()
    for text in (TEXT, TEXT[:4]):
        cache.begin(text)
        done = cache.advance(text)
        assert done.num_tokens == 1
        assert done.logits[0].argmax() == mixing(1)(text)
    assert session.passes == [8, 1, 1]


def test_only_what_is_new_is_compared():
    class Counted(int):
        compared = 0

        def __eq__(self, other):
            Counted.compared += 1
            return int(self) == int(other)

        __hash__ = int.__hash__

    text = [Counted(i % 50) for i in range(500)]
    cache, _ = started(text)
    Counted.compared = 0
    for i in range(20):
        cache.advance(text, [Counted(1), Counted(2)])
        text += [Counted(1), Counted(i)]
    assert Counted.compared <= 20 * 5


def test_a_long_prompt_is_read_in_chunks_and_the_last_one_holds_all_rows():
    session = ScriptedSession(counting, max_length=5000)
    cache = CachedSequence(session)
    assert len(cache.advance([1] * (2 * PREFILL_CHUNK + 5), [1] * 4).logits) == 5
    assert session.passes == [PREFILL_CHUNK, PREFILL_CHUNK, 9]
    cache.clear()
    session.passes.clear()
    assert len(cache.advance([1] * (PREFILL_CHUNK - 1), [1, 1]).logits) == 3
    assert session.passes == [PREFILL_CHUNK - 2, 3]


def test_rows_beyond_the_sequence_are_refused():
    cache, _ = started()
    for num_rows in (0, len(TEXT) + 1):
        with pytest.raises(SessionError, match=f"{num_rows} rows of logits were asked for, of 8"):
            cache.advance(TEXT, num_rows=num_rows)


def test_a_cancelled_sequence_gets_no_pass_and_keeps_what_it_has():
    cache, session = started()
    cancelled = Event()
    cache.begin([*TEXT, 1], cancelled)
    cancelled.set()
    with pytest.raises(Cancelled):
        cache.advance([*TEXT, 1])
    assert cache.tokens == session.cache == TEXT
    cache.begin([*TEXT, 2])
    assert cache.advance([*TEXT, 2]).num_tokens == 1


@pytest.mark.parametrize("forgets", [False, True])
def test_after_an_error_what_the_session_still_holds_is_known(forgets):
    session = Failing(mixing(1), forgets)
    cache = CachedSequence(session)
    cache.advance(TEXT)
    session.fails_in = 0
    with pytest.raises(RuntimeError, match="device"):
        cache.advance([*TEXT, 7], [8])
    assert cache.tokens == session.cache == ([] if forgets else TEXT)
    done = cache.advance([*TEXT, 7], [9])
    assert done.num_tokens == (10 if forgets else 2)
    assert session.cache == [*TEXT, 7, 9]


EDITS = st.one_of(
    st.tuples(st.just("add"), st.lists(st.integers(0, 3), min_size=1, max_size=5)),
    st.tuples(st.just("candidates"), st.lists(st.integers(0, 3), min_size=1, max_size=5)),
    st.tuples(st.just("turn to"), st.lists(st.integers(0, 3), min_size=1, max_size=12)),
    st.tuples(st.just("fail"), st.integers(0, 1)),
)


@given(st.lists(EDITS, max_size=30), st.booleans())
def test_any_history_of_a_cache_gives_the_logits_of_a_fresh_one(edits, forgets):
    session = Failing(mixing(1), forgets)
    cache = CachedSequence(session)
    text, candidates = [1], []
    for kind, value in edits:
        candidates = []
        if kind == "fail":
            session.fails_in = value
        elif kind == "candidates":
            candidates = value
        elif kind == "add":
            text = [*text, *value]
        else:
            text = value
            cache.begin(text)
        try:
            logits = cache.advance(text, candidates).logits
        except RuntimeError:
            logits = cache.advance(text, candidates).logits
        places = range(len(text), len(text) + len(candidates) + 1)
        whole = [*text, *candidates]
        assert logits.argmax(axis=1).tolist() == [mixing(1)(whole[:place]) for place in places]
        assert cache.tokens == session.cache == whole
