"""One generation from prompt to chunks, on scripted models: ends, cancellation, failures."""

from threading import Event, Thread

import pytest

from ov_specdec.engine.output import Reader
from ov_specdec.errors import OptionError
from ov_specdec.generation.text_generator import GenerationStream
from ov_specdec.options.generation import GenerationOptions
from ov_specdec.planning.costs import NOMINAL
from ov_specdec.planning.kept_costs import KeptCosts
from ov_specdec.planning.plan import MAX_PLANNED_LENGTH
from ov_specdec.results.chunks import collect
from ov_specdec.server.metrics import Metrics
from tests.support.fakes import ScriptedModel, counting
from tests.support.scripted import PATIENCE, Gate, generator, stream


def test_what_was_held_back_comes_with_the_last_chunk():
    chunks = stream(ScriptedModel(counting), stop_strings=["DX"])
    assert next(chunks).text == ""
    chunks.cancel()
    result = collect(chunks)
    assert (result.text, result.finish_reason) == ("D", "cancelled")


def test_a_stream_that_is_cancelled_before_it_begins_runs_no_pass():
    model = ScriptedModel(counting)
    chunks = stream(model)
    chunks.cancel()
    assert collect(chunks).finish_reason == "cancelled"
    assert model.passes == []


@pytest.mark.parametrize("end", [GenerationStream.cancel, GenerationStream.close])
def test_another_thread_ends_the_reading_of_a_prompt_within_one_pass(end):
    model = ScriptedModel(counting, max_length=10_000)
    gate = Gate(model)
    chunks = stream(gate, prompt=[1] * 5000)  # ten passes
    seen, cancelled, cancel = [], Event(), chunks._cancel
    chunks._cancel = lambda: (cancel(), cancelled.set())
    reader = Thread(target=lambda: seen.extend(chunks))
    reader.start()
    assert gate.entered.wait(PATIENCE)
    ender = Thread(target=end, args=[chunks])
    ender.start()
    if end is GenerationStream.cancel:
        ender.join(PATIENCE)  # it waits for nothing
    else:
        assert cancelled.wait(PATIENCE)
    gate.may_go_on.set()
    for thread in (reader, ender):
        thread.join(PATIENCE)
        assert not thread.is_alive()
    assert len(model.passes) == 1
    assert model.pool.num_used == 0
    assert all(chunk.finish_reason == "cancelled" for chunk in seen)


def test_drafting_is_cancelled_within_one_pass_too():
    main, draft = ScriptedModel(counting), ScriptedModel(counting)
    chunks = stream(main, draft, num_assistant_tokens=8)

    def cancel_in_the_second_pass(tokens):
        if len(draft.passes) == 2:
            chunks.cancel()
        return counting(tokens)

    draft._next_token = cancel_in_the_second_pass
    assert [chunk.finish_reason for chunk in chunks] == [None, "cancelled"]
    assert (len(main.passes), len(draft.passes)) == (1, 2)
    assert main.pool.num_used == draft.pool.num_used == 0


def submit(text, prompt, **options):
    """The chunks of a generation, as steps bring them."""
    chunks, given = [], GenerationOptions(ignore_eos=True, **options)
    ids = text.prompts.encode(prompt, given)
    sequence = text.begin(ids, given, Reader(receive=chunks.extend))
    text.loop.add(sequence)
    return sequence, chunks


def finish(text, request):
    while not request.has_ended:
        text.loop.step()
    assert request.error is None


def test_nothing_is_measured_while_a_request_runs():
    main, draft = ScriptedModel(counting), ScriptedModel(counting)
    costs = KeptCosts(main, draft, None)
    text = generator(main, draft, costs=costs)
    running, chunks = submit(text, "ABC", num_assistant_tokens=2, max_new_tokens=300)
    text.loop.step()
    other, _ = submit(text, "QRS", max_new_tokens=40)
    while not other.has_ended:
        num_passes, num_chunks = len(main.passes), len(chunks)
        num_drafted = len(draft.passes)
        text.loop.step()
        assert len(main.passes) == num_passes + 1
        assert len(draft.passes) <= num_drafted + MAX_PLANNED_LENGTH
        assert len(chunks) > num_chunks
    assert other.error is None
    assert not costs.curve.is_measured
    assert costs.curve.main != NOMINAL.main  # but taught by all of these
    assert costs.curve.draft != NOMINAL.draft
    finish(text, running)
    assert main.pool.num_used == draft.pool.num_used == 0


def test_a_first_generation_runs_no_pass_of_its_own_and_is_planned_by_the_prior():
    main, draft = ScriptedModel(counting), ScriptedModel(counting)
    text = generator(main, draft, costs=KeptCosts(main, draft, None))
    result = collect(text.stream("ABC", GenerationOptions(max_new_tokens=30)))
    assert len(main.passes) == len(result.stats.rounds)
    assert result.stats.rounds[1].num_drafted > 1
    *_, paid = [each for each in result.stats.draft_lengths if each["reason"] == "pays"]
    assert paid["expected_seconds"] > 0
    assert paid["verify_seconds"] > 0


@pytest.mark.parametrize(
    ("main_holds", "draft_holds", "held"),
    [(None, None, None), (4, None, 4), (None, 2, 2), (4, 2, 2), (2, 4, 2)],
)
def test_the_model_that_holds_fewer_sequences_says_how_many(main_holds, draft_holds, held):
    main, draft = ScriptedModel(counting), ScriptedModel(counting)
    main.max_sequences, draft.max_sequences = main_holds, draft_holds
    assert collect(stream(main, draft, max_new_tokens=4)).stats.max_sequences == held


@pytest.mark.parametrize("prompt", [None, b"bytes", 3, 2.5, [1.0, 2.0], [True, False], {"a": 1}])
def test_a_prompt_of_another_type_is_refused(prompt):
    with pytest.raises(OptionError, match="neither a text nor a list of token ids or messages"):
        stream(ScriptedModel(counting), prompt=prompt)


@pytest.mark.parametrize(("stop", "num_accepted"), [("E", 1), ("G", 3), ("L", 8), ("EF", 2)])
def test_draft_tokens_after_a_stop_string_do_not_count_as_accepted(stop, num_accepted):
    chunks = [
        *stream(
            ScriptedModel(counting),
            ScriptedModel(counting),
            num_assistant_tokens=8,
            stop_strings=stop,
        )
    ]
    stats = chunks[-1].stats
    drafts = [chunk for chunk in chunks if chunk.origin == "draft"]
    assert sum(len(chunk.token_ids) for chunk in drafts) == stats.accepted == num_accepted
    assert sum(run["accepted"] for run in stats.draft_lengths) == num_accepted
    metrics = Metrics("tiny")
    metrics.ended(stats, "stop")
    labels = {"model_name": "tiny"}
    name = "ov_specdec:spec_decode_num_accepted_tokens"
    assert metrics.registry.get_sample_value(f"{name}_total", labels) == num_accepted
    positions = [
        metrics.registry.get_sample_value(f"{name}_per_pos_total", {**labels, "position": str(i)})
        for i in range(8)
    ]
    assert positions == [1] * num_accepted + [None] * (8 - num_accepted)
