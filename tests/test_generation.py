"""One generation from prompt to chunks, on scripted sessions: ends, cancellation, failures."""

from threading import Event, Thread

import pytest

from ov_specdec.cache.sequence import CachedSequence
from ov_specdec.errors import OptionError
from ov_specdec.generation import GenerationStream, TextGenerator, collect
from ov_specdec.options import GenerationOptions
from ov_specdec.speculation.acceptance import MODEL_PRIOR, Acceptance
from ov_specdec.speculation.drafters.factory import DrafterFactory
from ov_specdec.speculation.drafters.pairing import draft_model
from tests.fakes import ScriptedSession, counting

PATIENCE = 30.0
"""Seconds after which a thread that should have ended has not."""


class Letters:
    """A tokenizer of 50 letters."""

    chat_template = None

    def encode(self, text):
        return [ord(letter) - ord("A") for letter in text]

    def decode(self, ids):
        return "".join(chr(ord("A") + token) for token in ids)


class Gate:
    """A session that reports each pass and waits until it may go on. Implements `Session`."""

    def __init__(self, session):
        self._session = session
        self.entered, self.may_go_on = Event(), Event()

    @property
    def length(self):
        return self._session.length

    @property
    def max_length(self):
        return self._session.max_length

    def forward(self, tokens, num_rows=None):
        self.entered.set()
        assert self.may_go_on.wait(PATIENCE)
        return self._session.forward(tokens, num_rows)

    def rollback(self, length):
        self._session.rollback(length)

    def reset(self):
        self._session.reset()

    def adopt(self, tokens):
        return self._session.adopt(tokens)

    def settle(self, tokens, length):
        self._session.settle(tokens, length)

    def leave(self, tokens):
        self._session.leave(tokens)


def generator(main, draft=None):
    drafts = None if draft is None else draft_model(CachedSequence(draft))
    drafters = DrafterFactory("none" if draft is None else "model", drafts)
    return TextGenerator(CachedSequence(main), Letters(), 50, frozenset(), drafters)


def stream(main, draft=None, prompt="ABC", **options):
    cancelled = Event()
    chunks = generator(main, draft).stream(prompt, GenerationOptions(**options), cancelled)
    return GenerationStream(chunks, cancelled)


def test_a_cancelled_stream_ends_with_a_chunk_that_says_so():
    chunks = stream(ScriptedSession(counting))
    first = next(chunks)
    chunks.cancel()
    rest = list(chunks)
    assert first.text == "D"
    assert [(chunk.text, chunk.finish_reason) for chunk in rest] == [("", "cancelled")]
    assert rest[0].stats.generated_tokens == 1


def test_what_was_held_back_comes_with_the_last_chunk():
    chunks = stream(ScriptedSession(counting), stop_strings=["DX"])
    assert next(chunks).text == ""
    chunks.cancel()
    result = collect(chunks)
    assert (result.text, result.finish_reason) == ("D", "cancelled")


def test_a_stream_that_is_cancelled_before_it_begins_runs_no_pass():
    session = ScriptedSession(counting)
    chunks = stream(session)
    chunks.cancel()
    assert collect(chunks).finish_reason == "cancelled"
    assert session.passes == []


@pytest.mark.parametrize("end", [GenerationStream.cancel, GenerationStream.close])
def test_another_thread_ends_the_reading_of_a_prompt_within_one_pass(end):
    session = ScriptedSession(counting, max_length=10_000)
    gate = Gate(session)
    chunks = stream(gate, prompt=[1] * 5000)  # ten passes
    seen = []
    reader = Thread(target=lambda: seen.extend(chunks))
    reader.start()
    assert gate.entered.wait(PATIENCE)
    ender = Thread(target=end, args=[chunks])
    ender.start()
    if end is GenerationStream.cancel:
        ender.join(PATIENCE)  # it waits for nothing
    else:
        assert chunks._cancelled.wait(PATIENCE)
    gate.may_go_on.set()
    for thread in (reader, ender):
        thread.join(PATIENCE)
        assert not thread.is_alive()
    assert len(session.passes) == 1
    assert all(chunk.finish_reason == "cancelled" for chunk in seen)


def test_drafting_is_cancelled_within_one_pass_too():
    main, draft = ScriptedSession(counting), ScriptedSession(counting)
    cancelled = Event()

    def cancel_in_the_second_pass(tokens):
        if len(draft.passes) == 2:
            cancelled.set()
        return counting(tokens)

    draft._next_token = cancel_in_the_second_pass
    options = GenerationOptions(num_assistant_tokens=8)
    chunks = generator(main, draft).stream("ABC", options, cancelled)
    assert [chunk.finish_reason for chunk in chunks] == [None, "cancelled"]
    assert len(draft.passes) == 2


def test_closing_frees_what_the_stream_holds():
    ended = []

    def chunks():
        try:
            yield 1
            yield 2
        finally:
            ended.append(True)

    with GenerationStream(chunks(), Event()) as opened:
        assert next(opened) == 1
    assert ended == [True]
    assert list(opened) == []


def test_a_failing_pass_leaves_the_next_generation_as_it_would_have_been():
    class Failing(ScriptedSession):
        fail_at = None

        def forward(self, tokens, num_rows=None):
            if len(self.passes) == self.fail_at:
                raise RuntimeError("out of memory")
            return super().forward(tokens, num_rows)

    main, draft = Failing(counting), Failing(counting)
    text = generator(main, draft)
    options = GenerationOptions(max_new_tokens=20, num_assistant_tokens=3)
    expected = collect(text.stream("ABC", options, Event())).token_ids
    for session in (main, draft):
        for fail_at in range(4):
            session.passes, session.fail_at = [], fail_at
            with pytest.raises(RuntimeError, match="out of memory"):
                collect(text.stream("ABC", options, Event()))
            session.fail_at = None
            assert collect(text.stream("ABC", options, Event())).token_ids == expected


def test_a_stream_learns_for_its_own_kind_of_generation_only():
    text = generator(ScriptedSession(counting), ScriptedSession(counting))
    greedy = text.stream("ABC", GenerationOptions(max_new_tokens=60), Event())
    next(greedy)
    sampled = text.stream("ABC", GenerationOptions(temperature=0.5), Event())
    list(greedy)
    sampled.close()
    kinds = text.learned.greedy, text.learned.sampled
    greedy, sampled = (Acceptance(kind).by_place("model", None, 1)[0] for kind in kinds)
    assert greedy > sampled == pytest.approx(MODEL_PRIOR)


@pytest.mark.parametrize(
    "prompt",
    [None, b"bytes", 3, 2.5, ["a", "list", "of texts"], [1.0, 2.0], [True, False], {"a": 1}],
)
def test_a_prompt_of_another_type_is_refused(prompt):
    with pytest.raises(OptionError, match="neither a text nor a list of token ids or messages"):
        stream(ScriptedSession(counting), prompt=prompt)


def test_a_prompt_that_is_no_valid_text_is_refused():
    with pytest.raises(OptionError, match="not valid text at character 1"):
        stream(ScriptedSession(counting), prompt="A\udcff")
