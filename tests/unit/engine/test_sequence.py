"""A sequence that knows what its KV cache holds: what is read again, kept, shared; errors."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ov_specdec import SessionError
from ov_specdec.runner.base import Span
from ov_specdec.runner.cached_sequence import PREFILL_CHUNK, CachedSequence, alone, forward
from tests.support.fakes import ScriptedModel, counting, held_by, mixing

TEXT = [3, 1, 4, 1, 5, 9, 2, 6]


class Forgetful(ScriptedModel):
    """A model whose sequences hold nothing after a pass that failed."""

    def forward(self, spans):
        try:
            return super().forward(spans)
        except RuntimeError:
            for span in spans:
                span.slot.free()
            raise


def started(text=TEXT):
    model = ScriptedModel(mixing(1), max_length=5000)
    cache = CachedSequence(model)
    alone(cache.advance(text))
    return cache, model


def test_a_new_sequence_holds_nothing_and_takes_no_block():
    cache, model = started()
    used = model.pool.num_used
    other = CachedSequence(model)
    assert other.tokens == held_by(other) == []
    assert model.pool.num_used == used
    assert held_by(cache) == TEXT


def test_what_was_added_is_fed():
    cache, model = started()
    done = alone(cache.advance([*TEXT, 7, 7]))
    assert (model.passes, done.num_tokens, done.num_cached) == ([8, 2], 2, 8)
    assert cache.tokens == held_by(cache) == [*TEXT, 7, 7]


class Compared(list):
    """A sequence that remembers from where on it was read at first."""

    def __getitem__(self, index):
        self.read_from = getattr(self, "read_from", index.start)  # the first time
        return super().__getitem__(index)


def test_only_what_was_added_is_compared():
    cache, _ = started()
    longer = Compared([*TEXT, 7, 7])
    alone(cache.advance(longer, [8]))
    assert longer.read_from == len(TEXT)


def test_tokens_that_an_interrupt_left_uncounted_are_rolled_back():
    cache, model = started()
    model.forward([Span(cache._slot, [7], 1)])  # the interrupt came before its return was seen
    assert alone(cache.advance([*TEXT, 8])).num_tokens == 1
    assert held_by(cache) == [*TEXT, 8]


def test_there_is_a_row_for_each_draft_token_and_one_after_them():
    cache, _ = started()
    rows = alone(cache.advance([*TEXT, 7], [8, 9])).logits
    expected = [mixing(1)([*TEXT, 7]), mixing(1)([*TEXT, 7, 8]), mixing(1)([*TEXT, 7, 8, 9])]
    assert rows.argmax(axis=1).tolist() == expected
    last = alone(cache.advance([*TEXT, 7], [8, 9], num_rows=1)).logits
    np.testing.assert_array_equal(last, rows[-1:])


def test_accepted_draft_tokens_are_not_fed_again_and_rejected_ones_are_rolled_back():
    cache, model = started()
    alone(cache.advance([*TEXT, 7], [8, 9, 10]))
    done = alone(cache.advance([*TEXT, 7, 8, 0]))  # 8 accepted, 9 replaced by 0
    assert (done.num_tokens, model.rollbacks) == (1, [len(TEXT) + 2])
    assert held_by(cache) == [*TEXT, 7, 8, 0]


def test_another_sequence_holds_what_both_begin_with():
    cache, model = started()
    cache.free()
    other, text = CachedSequence(model), [*TEXT[:5], 0, 0, 0, 0]
    done = alone(other.advance(text))
    assert (done.num_tokens, done.num_cached) == (4, 5)
    assert other.tokens == held_by(other) == text
    assert cache.tokens == held_by(cache) == []


def test_sequences_that_run_share_whole_blocks_of_what_both_begin_with():
    cache, model = started()
    other = CachedSequence(model)
    assert alone(other.advance([*TEXT[:7], 0, 0])).num_cached == 4
    alone(other.advance([*TEXT[:7], 0, 0, 5]))
    assert held_by(cache) == TEXT


def test_a_cache_that_was_given_up_is_taken_up_again():
    cache, model = started()
    cache.free()
    assert model.pool.num_used == 0
    done = alone(cache.advance([*TEXT, 7], [8]))
    assert (done.num_cached, done.num_tokens) == (8, 2)
    assert held_by(cache) == [*TEXT, 7, 8]


def test_a_cache_that_is_taken_up_again_lacks_the_newest_token_even_if_others_have_it():
    model = ScriptedModel(mixing(1))
    cache, text = CachedSequence(model), TEXT[:6]
    alone(cache.advance(text, [2], num_rows=1))
    cache.free()
    other = CachedSequence(model)
    alone(other.advance([*TEXT, 5]))
    other.free()
    text += TEXT[6:]  # ends with a block
    cache.match_prefix()
    assert alone(cache.advance(text, num_rows=1)).num_tokens == 1


def test_draft_tokens_are_not_left_to_others():
    cache, model = started()
    alone(cache.advance([*TEXT, 7], [8, 9, 10]))
    cache.free()
    assert alone(CachedSequence(model).advance([*TEXT, 7, 8, 9, 10, 11])).num_cached == 9


@pytest.mark.parametrize("namespace", ["another", None])
def test_a_sequence_of_another_namespace_shares_nothing(namespace):
    model = ScriptedModel(mixing(1))
    first, second = CachedSequence(model, "one"), CachedSequence(model, namespace)
    alone(first.advance(TEXT))
    first.free()
    assert alone(second.advance(TEXT)).num_cached == 0
    assert alone(CachedSequence(model, "one").advance(TEXT)).num_cached == 7


def test_what_was_dropped_is_not_found():
    cache, model = started()
    cache.discard()
    assert cache.tokens == held_by(cache) == []
    assert alone(CachedSequence(model).advance(TEXT)).num_cached == 0


def test_the_last_token_is_fed_again_where_it_is_cached_already():
    cache, model = started()
    for text in (TEXT, TEXT[:4]):
        cache.free()
        cache = CachedSequence(model)
        done = alone(cache.advance(text))
        assert done.num_tokens == 1
        assert done.logits[0].argmax() == mixing(1)(text)
    assert model.passes == [8, 1, 1]


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
        alone(cache.advance(text, [Counted(1), Counted(2)]))
        text += [Counted(1), Counted(i)]
    assert Counted.compared <= 20 * 5


def test_a_long_prompt_is_read_in_chunks_and_the_last_one_holds_all_rows():
    model = ScriptedModel(counting, max_length=5000)
    cache = CachedSequence(model)
    assert len(alone(cache.advance([1] * (2 * PREFILL_CHUNK + 5), [1] * 4)).logits) == 5
    assert model.passes == [PREFILL_CHUNK, PREFILL_CHUNK, 9]
    cache.discard()
    model.sizes.clear()
    assert len(alone(cache.advance([1] * (PREFILL_CHUNK - 1), [1, 1])).logits) == 3
    assert model.passes == [PREFILL_CHUNK - 2, 3]


def test_rows_beyond_the_sequence_are_refused():
    cache, _ = started()
    for num_rows in (0, len(TEXT) + 1):
        with pytest.raises(SessionError, match=f"8 tokens cannot give {num_rows} rows"):
            alone(cache.advance(TEXT, num_rows=num_rows))


def test_who_stops_waiting_for_a_pass_keeps_what_the_cache_has():
    cache, model = started()
    steps = cache.advance([*TEXT, 1])
    assert next(steps) is cache
    steps.close()
    assert cache.tokens == held_by(cache) == TEXT
    assert alone(cache.advance([*TEXT, 2])).num_tokens == 1
    assert model.passes == [8, 1]


@pytest.mark.parametrize("kind", [ScriptedModel, Forgetful])
def test_after_an_error_what_the_slot_still_holds_is_known(kind):
    model = kind(mixing(1))
    cache = CachedSequence(model)
    alone(cache.advance(TEXT))
    model.fails_in = 0
    with pytest.raises(RuntimeError, match="device"):
        alone(cache.advance([*TEXT, 7], [8]))
    assert held_by(cache) == ([] if kind is Forgetful else TEXT)
    done = alone(cache.advance([*TEXT, 7], [9]))
    assert done.num_tokens == (10 if kind is Forgetful else 2)
    assert cache.tokens == held_by(cache) == [*TEXT, 7, 9]


TOKENS = st.lists(st.integers(0, 3), min_size=1, max_size=12)
EDITS = st.tuples(st.sampled_from(["add", "draft", "turn to", "free", "discard", "fail"]), TOKENS)


@given(
    st.lists(EDITS, max_size=30),
    st.sampled_from([ScriptedModel, Forgetful]),
    st.none() | st.integers(1, 60),
)
def test_any_history_of_a_cache_gives_the_logits_of_a_fresh_one(edits, kind, border):
    model = kind(mixing(1), border=border)
    cache, text = CachedSequence(model), [1]
    for edit, value in edits:
        draft_tokens = value[: min(5, cache.room(len(text)) - 1)] if edit == "draft" else []
        if edit == "fail":
            model.fails_in = len(value) % 2
        elif edit == "free":
            cache.free()
        elif edit == "discard":
            cache.discard()
        elif edit == "add":
            text = [*text, *value]
        elif edit == "turn to":
            cache.free()
            cache, text = CachedSequence(model), value
        try:
            logits = alone(cache.advance(text, draft_tokens)).logits
        except RuntimeError:
            logits = alone(cache.advance(text, draft_tokens)).logits
        places = range(len(text), len(text) + len(draft_tokens) + 1)
        whole = [*text, *draft_tokens]
        assert logits.argmax(axis=1).tolist() == [mixing(1)(whole[:place]) for place in places]
        assert cache.tokens == held_by(cache) == whole
    cache.free()
    assert model.pool.num_used == 0


BORDER = 10


def before_the_border(num_tokens):
    model = ScriptedModel(mixing(1), max_length=30, border=BORDER)
    cache, text = CachedSequence(model), [*TEXT, *TEXT][:num_tokens]
    alone(cache.advance(text))
    return cache, model, text


@pytest.mark.parametrize(
    ("num_tokens", "room"), [(1, 10), (9, 2), (10, 1), (11, 20), (29, 2), (30, 1)]
)
def test_draft_tokens_that_are_fed_do_not_cross_the_border(num_tokens, room):
    cache = CachedSequence(ScriptedModel(counting, max_length=30, border=BORDER))
    assert cache.room(num_tokens) == room


@pytest.mark.parametrize(("limit", "size"), [(None, 7), (4, 5), (2, 3), (1, 3)])
def test_no_more_is_fed_than_can_be_rolled_back(limit, size):
    """The last of the draft tokens that there is room for need not be fed."""
    model = ScriptedModel(counting)
    model.max_draft_tokens = limit
    cache = CachedSequence(model)
    assert cache.room(10) == (991 if limit is None else limit + 1)
    next(cache.advance([5], [6, 7]))
    assert len(cache.span(64, padding=4).tokens) == size


def test_a_context_that_memory_made_shorter_than_the_border_ends_where_it_does():
    model = ScriptedModel(counting, max_length=30, border=BORDER, block_size=1)
    model.limit(8)
    assert CachedSequence(model).room(5) == 4


def test_a_sequence_that_crosses_the_border_is_read_again_and_then_goes_on():
    cache, model, text = before_the_border(9)
    for token in (1, 2, 3):
        text.append(token)
        assert alone(cache.advance(text)).logits[0].argmax() == mixing(1)(text)
        assert held_by(cache) == cache.tokens == text
    assert model.passes == [9, 1, 11, 1]


def test_what_was_cached_on_one_side_of_the_border_is_not_found_on_the_other():
    cache, model, text = before_the_border(BORDER)
    cache.free()
    longer = CachedSequence(model)
    assert alone(longer.advance([*text, 1])).num_cached == 0
    longer.free()
    for tokens, num_cached in ((text, 9), ([*text, 1], 10), ([*text, 1, 2], 11), (text[:4], 3)):
        other = CachedSequence(model)
        assert alone(other.advance(tokens)).num_cached == num_cached
        other.free()
    assert model.pool.num_used == 0


def test_a_prompt_beyond_the_border_is_read_as_one_from_its_first_chunk_on():
    model = ScriptedModel(mixing(1), border=BORDER)
    cache, text = CachedSequence(model), [*TEXT, *TEXT]
    steps = cache.advance(text)
    next(steps)
    while cache.num_pending:
        forward([cache], [cache.span(4)])
    with pytest.raises(StopIteration) as done:
        next(steps)
    assert done.value.value.logits[0].argmax() == mixing(1)(text)
    assert model.passes == [4, 4, 4, 4]


def test_a_sequence_that_became_shorter_is_back_on_its_side():
    cache, _, text = before_the_border(BORDER + 2)
    for length in (BORDER, BORDER + 1, 3):
        assert alone(cache.advance(text[:length])).logits[0].argmax() == mixing(1)(text[:length])


def test_a_cache_that_was_given_up_beyond_the_border_is_taken_up_there():
    cache, _, text = before_the_border(BORDER + 2)
    cache.free()
    cache.match_prefix()
    done = alone(cache.advance([*text, 7], [8]))
    assert (done.num_cached, done.num_tokens) == (BORDER + 1, 3)
    assert held_by(cache) == [*text, 7, 8]
