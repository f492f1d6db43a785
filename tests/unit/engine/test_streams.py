"""Several generations at once, on scripted models: streams in turns and threads, batches."""

import gc
from functools import partial
from threading import Barrier, Thread

import pytest

from ov_specdec.engine.output import Reader
from ov_specdec.engine.scheduler import StepLimits
from ov_specdec.errors import SessionError
from ov_specdec.options.generation import GenerationOptions
from ov_specdec.results.chunks import collect
from tests.support.fakes import ScriptedModel, counting, mixing, wrong_at
from tests.support.scripted import PATIENCE, Gate, generator

PROMPTS = ["ABC", "ABD", "QRSTUVWXYZ", "B", "ABC"]


def options(**settings):
    return GenerationOptions(**{"max_new_tokens": 30, "num_assistant_tokens": 3, **settings})


class Pair:
    """Scripted models, whose draft is wrong in some places, and what they generate."""

    def __init__(self, limits=None, **memory):
        self.main = ScriptedModel(mixing(1), **memory)
        self.draft = ScriptedModel(wrong_at(mixing(1), {9, 14, 15, 22}), **memory)
        self.text = generator(self.main, self.draft, limits)

    def stream(self, prompt, **settings):
        return self.text.stream(prompt, options(**settings))

    @property
    def num_used(self):
        return self.main.pool.num_used + self.draft.pool.num_used


def alone(prompt, **settings):
    """What a prompt gets that has the models to itself."""
    return collect(Pair().stream(prompt, **settings))


def test_threads_that_read_streams_get_what_each_gets_alone():
    pair = Pair()
    together, results = Barrier(len(PROMPTS)), {}

    def read(number):
        together.wait(PATIENCE)
        results[number] = collect(pair.stream(PROMPTS[number]))

    threads = [Thread(target=read, args=[number]) for number in range(len(PROMPTS))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    for number, prompt in enumerate(PROMPTS):
        assert results[number].token_ids == alone(prompt).token_ids
    assert pair.num_used == 0


def test_a_stream_that_is_dropped_frees_its_blocks_and_the_others_go_on():
    pair = Pair()
    dropped, other = pair.stream("ABC"), pair.stream("QRS")
    chunks = [next(other)]
    next(dropped)
    used = pair.num_used
    del dropped
    gc.collect()
    assert 0 < pair.num_used < used
    chunks += other
    assert collect(chunks).token_ids == alone("QRS").token_ids
    assert pair.num_used == 0


def test_a_stream_that_nobody_reads_any_more_loses_nothing():
    pair = Pair(StepLimits(max_batch_size=2))
    settings = {"max_new_tokens": 100, "num_assistant_tokens": 0}
    left = pair.stream("ABC", **settings)
    begun = [next(left)]
    for prompt in ("QRS", "TUV"):  # others are read meanwhile
        result = collect(pair.stream(prompt, **settings))
        assert result.token_ids == alone(prompt, **settings).token_ids
    assert pair.num_used == 0
    assert collect([*begun, *left]).token_ids == alone("ABC", **settings).token_ids


def test_a_stream_is_cancelled_while_another_thread_runs_its_passes():
    pair = Pair()
    gate = Gate(pair.main)
    gate.may_go_on.set()
    text = generator(gate, pair.draft)
    cancelled = text.stream("ABC", options(max_new_tokens=900))
    next(cancelled)
    gate.entered.clear()
    gate.may_go_on.clear()
    result = []
    reader = Thread(target=lambda: result.append(collect(text.stream("QRS", options()))))
    reader.start()
    assert gate.entered.wait(PATIENCE)
    cancelled.cancel()  # returns, though a pass is running that it takes part in
    num_passes = len(pair.main.sizes)
    gate.may_go_on.set()
    reader.join(PATIENCE)
    assert not reader.is_alive()
    # Its newest tokens come in the pass that was running, and no other holds any.
    assert max(map(len, pair.main.sizes[num_passes + 1 :])) == 1
    assert pair.num_used == 0
    assert result[0].token_ids == alone("QRS").token_ids
    assert list(cancelled)[-1].finish_reason == "cancelled"


def test_a_stream_is_closed_by_its_own_processor():
    pair = Pair()

    def close(_tokens, logits):
        stream.close()
        return logits

    stream = pair.stream("ABC", logits_processor=[close])
    *_, last = stream
    assert last.finish_reason == "cancelled"
    assert pair.num_used == 0


def in_time(function):
    """What a function returns or raises, in a thread that is left behind should it hang."""
    outcome = []

    def run():
        try:
            outcome.append(function())
        except Exception as error:
            outcome.append(error)

    thread = Thread(target=run, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert outcome, "it hangs"
    return outcome[0]


@pytest.mark.parametrize(
    "generate",
    [
        pytest.param(lambda pair: collect(pair.stream("QRS")), id="stream"),
        pytest.param(lambda pair: pair.text.batch([("QRS", options())] * 2), id="batch"),
        pytest.param(lambda pair: pair.text.loop.step(), id="step"),
    ],
)
@pytest.mark.parametrize("length", [3, 12])
def test_a_processor_that_generates_on_its_own_pipeline_is_told_so(generate, length):
    pair, raised = Pair(), []

    def processor(tokens, logits):
        if len(tokens) >= length:
            with pytest.raises(SessionError, match="cannot generate with the same") as info:
                generate(pair)
            raised.append(info.value)
            raise info.value
        return logits

    outcome = in_time(lambda: collect(pair.stream("ABC", logits_processor=[processor])))
    assert outcome is raised[0]
    assert len(raised) == 1
    assert in_time(lambda: collect(pair.stream("ABD"))).token_ids == alone("ABD").token_ids
    assert pair.num_used == 0


class Broken:
    """A logits processor that fails once a sequence has so many tokens."""

    def __init__(self, length, error=ZeroDivisionError):
        self._length = length
        self._error = error

    def __call__(self, tokens, logits):
        if len(tokens) >= self._length:
            raise self._error
        return logits


def test_an_interrupt_within_one_generation_leaves_the_others():
    pair = Pair()
    bad = pair.stream("TUV", logits_processor=[Broken(24, KeyboardInterrupt)])
    next(bad)
    streams = [pair.stream("ABC"), pair.stream("QRS"), pair.stream("XYZ")]
    chunks = [[next(stream)] for stream in streams]
    with pytest.raises(KeyboardInterrupt):
        list(bad)
    for prompt, stream, own in zip(("ABC", "QRS", "XYZ"), streams, chunks, strict=True):
        assert collect([*own, *stream]).token_ids == alone(prompt).token_ids
    assert pair.num_used == 0


@pytest.mark.parametrize(
    ("max_new_tokens", "num_tokens", "limit"),
    [(None, 40, "kv_cache_size"), (20, 40, "max_new_tokens"), (7, 27, "max_new_tokens")],
)
def test_a_text_runs_to_its_limit_and_says_which_that_was(max_new_tokens, num_tokens, limit):
    main = ScriptedModel(counting)
    text = generator(main)
    main.limit(40)
    options = GenerationOptions(max_new_tokens=max_new_tokens)
    result = collect(text.stream([1] * 20, options))
    assert result.token_ids == [token % 50 for token in range(2, num_tokens - 18)]
    assert (result.finish_reason, result.stats.length_limit) == ("length", limit)
    assert result.stats.as_dict()["length_limit"] == limit


def test_closing_ends_all_streams_those_that_were_not_read_too():
    pair = Pair()
    streams = [pair.stream(prompt) for prompt in PROMPTS]
    next(streams[0])
    pair.text.loop.close()
    assert pair.num_used == 0
    for stream in streams:
        assert [chunk.finish_reason for chunk in stream][-1] == "cancelled"
    assert len(pair.main.passes) == 1


def batch(pair, prompts, *own, **shared):
    settings = own or [{}] * len(prompts)
    return pair.text.batch(
        [
            (prompt, options(**shared, **each))
            for prompt, each in zip(prompts, settings, strict=True)
        ]
    )


def test_an_error_in_a_batch_ends_it():
    pair = Pair()
    settings = [{}, {"logits_processor": [Broken(14)]}, {}, {}, {}]
    with pytest.raises(ZeroDivisionError):
        batch(pair, PROMPTS, *settings)
    assert pair.num_used == 0
    assert collect(pair.stream("ABC")).token_ids == alone("ABC").token_ids


@pytest.mark.parametrize("error", [None, ValueError("this processor is broken")])
def test_an_answer_that_cannot_be_remembered_ends_and_others_go_on(error):
    pair, failure = Pair(), OSError("the disk is full")

    def raises(*_, **__):
        raise failure

    def fails(tokens, row):
        if error is not None and len(tokens) > 5:
            raise error
        return row

    ends = {}

    def begin(prompt, **more):
        asked = options(**more, cache_salt="mine")
        ids, end = pair.text.prompts.encode(prompt, asked), partial(ends.__setitem__, prompt)
        reader = Reader(receive=lambda _: None, on_end=end)
        sequence = pair.text.begin(ids, asked, reader)
        pair.text.loop.add(sequence)

    begin("ABC", max_new_tokens=8, logits_processor=[fails])
    begin("QRS")
    pair.text.prompts.generated_tokens.remember = raises
    while "ABC" not in ends:
        pair.text.loop.step()
    del pair.text.prompts.generated_tokens.remember
    while "QRS" not in ends:
        pair.text.loop.step()
    assert ends == {"ABC": error or failure, "QRS": None}
    assert pair.num_used == 0
