"""A sequence that knows what its KV cache holds: what is read again, kept, shared; errors."""

from contextlib import suppress
from itertools import cycle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ov_specdec import SessionError
from ov_specdec.runner.base import Span
from ov_specdec.runner.cached_sequence import PREFILL_CHUNK, CachedSequence, alone, forward
from tests.support.fakes import ScriptedModel, Separating, counting, held_by, mixing

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


def test_tokens_that_an_interrupt_left_uncounted_are_rolled_back():
    cache, model = started()
    model.forward([Span(cache._slot, [7], 1)])  # the interrupt came before its return was seen
    assert alone(cache.advance([*TEXT, 8])).num_tokens == 1
    assert held_by(cache) == [*TEXT, 8]


def test_the_newest_token_is_fed_again_even_if_others_have_it():
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


STEPS = st.lists(st.tuples(st.sampled_from(["text", "draft", "preempt"]), TOKENS), max_size=12)


@given(
    st.lists(st.tuples(TOKENS, STEPS), min_size=1, max_size=4),
    st.lists(st.integers(1, 9), min_size=1),
    st.integers(1, 4),
)
def test_a_token_is_fed_as_its_place_in_the_text_says(requests, limits, num_rows):
    """However prompts are cut, continued by other prompts, preempted, and rolled back."""
    model, limit = Separating(mixing(1)), cycle(limits)
    for prompt, steps in requests:
        cache, text = CachedSequence(model, num_prompt_tokens=len(prompt)), [*prompt]
        others = [([], min(num_rows, len(prompt)))]
        for kind, value in steps:
            others.append((value if kind == "draft" else [], None))
            text_after = value if kind == "text" else []
            if kind == "preempt":
                cache.free()
            for draft_tokens, rows in others:
                waiting = cache.advance(text, draft_tokens, rows)
                with suppress(StopIteration):
                    while True:
                        next(waiting)
                        forward([cache], [cache.span(next(limit))])
                whole = [*text, *draft_tokens]
                assert held_by(cache) == whole
                expected = len(prompt) if len(prompt) > 1 else 0
                assert model.num_read(cache._slot) == expected
            text, others = [*text, *text_after], []
        cache.free()
    assert model.pool.num_used == 0


@pytest.mark.parametrize(("limit", "room"), [(None, 991), (4, 5), (1, 2)])
def test_no_more_is_fed_than_can_be_rolled_back(limit, room):
    """The last of the draft tokens that there is room for need not be fed."""
    model = ScriptedModel(counting)
    model.max_draft_tokens = limit
    assert CachedSequence(model).room(10) == room
