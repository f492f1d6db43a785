"""The demo without a browser: runs, comparisons, visitors, models, the sweep."""

import subprocess
import sys
import weakref
from contextlib import closing
from threading import Thread

import pytest

from ov_specdec import SpeculativePipeline
from ov_specdec.chunks import Chunk
from ov_specdec.demo import charts
from ov_specdec.demo.cancellation import Cancellation
from ov_specdec.demo.comparison import Comparison, compare
from ov_specdec.demo.conversation import Conversation
from ov_specdec.demo.models import Choice, LoadedModels, describe
from ov_specdec.demo.queue import DONE, LOADING, STOPPED, WAITING, RunQueue
from ov_specdec.demo.run import Piece, Run
from ov_specdec.demo.service import DemoService, Form
from ov_specdec.demo.settings import Settings
from ov_specdec.demo.sweep import MAX_TOKENS, NUM_STEPS, REPEATS, TEMPERATURES, sweep
from ov_specdec.errors import OptionError, SessionError, SpecdecError
from ov_specdec.loading.locate import embedded_folder
from ov_specdec.stats import GenerationStats, RoundStats
from tests.chats import ANSWER, SYSTEM, USER
from tests.chunks import CANCELLED, CHUNKS, followed, spell


@pytest.fixture(scope="module")
def pipeline(tiny_pair):
    return SpeculativePipeline(*tiny_pair, precision="exact")


@pytest.fixture
def models(tiny_pair):
    return LoadedModels(*map(str, tiny_pair), {"precision": "exact"})


@pytest.fixture
def chat_service(chat_pair):
    return DemoService(LoadedModels(*map(str, chat_pair), {"precision": "exact"}))


def say(service, conversation, message, *, meanwhile=lambda turn: None, **chosen):
    """A visitor's next turn; returns the lines of status. meanwhile: called after each."""
    turn, lines = conversation.ask(message), []
    with closing(service.compare("a", form(prompt=conversation, **chosen))) as states:
        for turn.comparison, line in states:
            lines.append(line)
            meanwhile(turn)
    return lines


def answered(text):
    """A comparison with this text from plain decoding, and another one."""
    return Comparison(plain=Run([Piece(text, "plain")], [1]), speculative=followed())


def form(**chosen):
    values = {
        "prompt": "def area(",
        "max_new_tokens": 24,
        "drafter": "model",
        "draft_length": 3,
        "temperature": 0,
        "top_p": 1,
        "top_k": 0,
        "seed": "",
        "device": "CPU",
        "draft_device": "CPU",
    }
    return Form(**{**values, **chosen})


def test_a_run_keeps_what_its_chunks_bring():
    run = followed()
    assert run.token_ids == [1, 2, 3, 4, 5, 6]
    assert (run.accepted, run.rejected, run.num_rounds) == (3, 2, 3)
    assert run.outcome == "length"
    assert run.stats is CHUNKS[-1].stats
    assert run.pieces[2] == Piece("d", "correction", "hi")
    assert [[piece.text for piece in pieces] for pieces in run.rounds] == [
        ["a"],
        ["bc", "d"],
        ["e", "<f>"],
    ]


def test_a_run_ends_with_its_last_chunk_and_closes_the_stream():
    closed = []

    def chunks():
        try:
            yield from [*CHUNKS, Chunk("more", [7], "plain")]
        finally:
            closed.append(True)

    run = Run()
    for _ in run.follow(chunks(), spell):
        pass
    assert run.token_ids == [1, 2, 3, 4, 5, 6]
    assert closed == [True]


def test_a_cancelled_run_keeps_what_it_has():
    run = followed(CANCELLED)
    assert run.token_ids == [1, 2, 3]
    assert (run.outcome, run.is_complete) == ("cancelled", False)
    assert len(run.pieces) == 2


def test_time_between_chunks_does_not_count(monkeypatch):
    clock = iter(range(100))
    monkeypatch.setattr("ov_specdec.demo.run.perf_counter", lambda: next(clock))
    run = followed()
    assert run.seconds == len(CHUNKS)
    assert run.first_token_seconds == 1
    assert run.tokens_per_second == 6 / 5


def test_plain_decoding_ends_before_speculation_begins(pipeline):
    outcomes = [
        (state.plain.outcome, state.speculative.outcome)
        for state in compare(pipeline, form().settings, Cancellation())
    ]
    assert list(dict.fromkeys(outcomes)) == [
        ("running", "not started"),
        ("length", "not started"),
        ("length", "running"),
        ("length", "length"),
    ]


def test_both_methods_write_the_same_and_only_one_drafts(pipeline):
    *_, last = compare(pipeline, form().settings, Cancellation())
    assert last.plain.token_ids == last.speculative.token_ids
    assert last.note == "Both texts are the same, token for token."
    assert last.plain.accepted == 0 < last.speculative.accepted
    assert last.ratio == last.speculative.tokens_per_second / last.plain.tokens_per_second


def test_with_a_seed_both_methods_write_the_same_sample(pipeline):
    *_, last = compare(pipeline, form(temperature=1.0, seed="3").settings, Cancellation())
    assert last.plain.token_ids == last.speculative.token_ids
    *_, other = compare(pipeline, form(temperature=1.0, seed="4").settings, Cancellation())
    assert other.plain.token_ids != last.plain.token_ids


@pytest.mark.parametrize(
    ("samples", "explanation"),
    [(True, "independent samples from the same"), (False, "differ after 5 tokens")],
)
def test_a_difference_is_explained(samples, explanation):
    other = [*CHUNKS[:-1], Chunk("g", [7], "bonus", [], "length", CHUNKS[-1].stats)]
    assert explanation in Comparison(samples, "", followed(), followed(other)).note


def test_a_text_that_only_ends_earlier_differs_at_its_end():
    shorter = [*CHUNKS[:-2], Chunk("e", [5], "bonus", [], "stop", CHUNKS[-1].stats)]
    assert "differ after 5 tokens" in Comparison(False, "", followed(), followed(shorter)).note


def test_an_unfinished_comparison_has_no_ratio_and_no_note():
    comparison = Comparison(False, "", followed(), followed(CANCELLED))
    assert comparison.ratio is None
    assert comparison.note == ""


def test_a_cancellation_ends_both_runs(pipeline):
    cancellation = Cancellation()
    states = compare(pipeline, form().settings, cancellation)
    next(states)
    cancellation.set()
    *_, last = states
    assert 0 < len(last.plain.token_ids) < 24
    assert (last.plain.outcome, last.speculative.outcome) == ("cancelled", "cancelled")
    assert last.speculative.token_ids == []


def test_a_comparison_says_which_caches_and_profile_it_has(pipeline, tmp_path, monkeypatch):
    *_, last = compare(pipeline, form(max_new_tokens=2).settings, Cancellation())
    assert f"main {pipeline.main.kv}" in last.models
    assert f"draft {pipeline.draft.kv}" in last.models
    assert "Profile: none." in last.models
    monkeypatch.setattr(pipeline, "profile", tmp_path / "tuned.json")
    assert describe(pipeline).endswith("Profile: tuned.json.")  # and not where it lies


def test_a_turn_is_asked_with_the_turns_before_it():
    conversation = Conversation()
    conversation.ask(USER["content"]).comparison = answered(ANSWER["content"])
    conversation.ask("And the other one?")
    messages = [USER, ANSWER, {"role": "user", "content": "And the other one?"}]
    assert conversation.prompt() == conversation.prompt(" \n") == messages
    assert conversation.prompt(SYSTEM["content"]) == [SYSTEM, *messages]


def test_a_message_without_an_answer_can_be_taken_back():
    conversation = Conversation()
    conversation.ask("one").comparison = answered("")
    assert conversation.take_back() is None
    unanswered = conversation.ask("two")
    assert conversation.take_back() is unanswered
    conversation.ask("three")
    conversation.ask("four")
    assert [turn.message for turn in conversation.turns] == ["one", "four"]


@pytest.mark.parametrize(
    ("messages", "complaint"), [([], "send a message first"), ([" \n"], "the message is empty")]
)
def test_a_conversation_needs_a_message(messages, complaint):
    conversation = Conversation()
    for message in messages:
        conversation.ask(message)
    with pytest.raises(OptionError, match=complaint):
        conversation.prompt()


def test_both_methods_read_the_same_conversation(chat_service, monkeypatch):
    read = []
    stream = SpeculativePipeline.stream

    def watch(pipeline, prompt, **options):
        if not isinstance(prompt, str):  # as those of the warm-up are
            completed = pipeline.complete_options(**options)
            read.append(pipeline._generator.encode(prompt, completed))
        return stream(pipeline, prompt, **options)

    monkeypatch.setattr(SpeculativePipeline, "stream", watch)
    conversation = Conversation()
    sampled = {"temperature": 1.5, "system": "Be brief."}  # without a seed, so that they differ
    for message in ("What is it?", "And now?"):
        assert say(chat_service, conversation, message, **sampled)[-1] == DONE
    first, second = (turn.comparison for turn in conversation.turns)
    assert len(read) == 4
    assert read[0] == read[1]
    assert read[2] == read[3]
    decode = chat_service.models.get(form().choice).tokenizer.decode_all
    assert decode(read[0]).startswith("<eos>system\nBe brief.<eos>\n<eos>user\nWhat is it?")
    assert first.plain.text != first.speculative.text
    assert decode(read[2]).startswith(decode(read[0]) + first.plain.text)
    assert [run.stats.cached_tokens for run in (second.plain, second.speculative)] == [0, 0]


def test_a_conversation_beyond_the_context_goes_on_when_cleared(chat_service):
    conversation = Conversation()
    say(chat_service, conversation, "area " * 120)
    with pytest.raises(OptionError, match="shorten the prompt"):
        say(chat_service, conversation, "area " * 120)
    assert conversation.take_back().message == "area " * 120
    assert len(conversation.turns) == 1
    conversation.clear()
    assert say(chat_service, conversation, "area " * 120)[-1] == DONE


def test_an_answer_that_was_stopped_stays_as_far_as_it_came(chat_service):
    def stop(turn):
        if turn.is_answered:
            chat_service.cancel("a")

    conversation = Conversation()
    assert say(chat_service, conversation, "What is it?", meanwhile=stop)[-1] == STOPPED
    turn = conversation.turns[0]
    assert 0 < len(turn.comparison.plain.token_ids) < 24
    assert conversation.take_back() is None
    say(chat_service, conversation, "Go on.")
    assert conversation.prompt()[1] == {"role": "assistant", "content": turn.comparison.plain.text}


def test_a_run_adds_nothing_to_a_conversation_that_was_cleared(chat_service):
    conversation = Conversation()
    clear = {"meanwhile": lambda turn: conversation.clear()}
    assert say(chat_service, conversation, "What is it?", **clear)[-1] == DONE
    assert conversation.turns == []
    assert conversation.take_back() is None


def test_only_a_chat_template_makes_conversations(models, chat_service):
    for held, has_one in ((models, False), (chat_service.models, True)):
        assert not held.has_chat_template
        held.get(Choice("prompt-lookup", "CPU", "CPU"))
        assert held.has_chat_template == has_one


def test_options_without_effect_are_left_out():
    assert Settings("x", top_p=0.5, seed=3).options() == {
        "max_new_tokens": 128,
        "num_assistant_tokens": "auto",
        "cache_prompt": False,
    }
    sampled = Settings("x", temperature=0.7, top_p=0.5, top_k=9, seed=3).options()
    assert sampled["top_p"] == 0.5
    assert (sampled["temperature"], sampled["top_k"], sampled["seed"]) == (0.7, 9, 3)


def test_one_visitors_cancellation_is_not_anothers():
    queue = RunQueue()
    mine, also_mine, yours = queue.join("a"), queue.join("a"), queue.join("b")
    queue.cancel("a")
    places = (mine, also_mine, yours)
    assert [place.cancellation.is_set() for place in places] == [True, True, False]
    assert not queue.join("a").cancellation.is_set()
    queue.cancel_all()
    assert yours.cancellation.is_set()


def test_a_run_that_has_ended_is_forgotten():
    queue = RunQueue()
    first, second = queue.join("a"), queue.join("a")
    queue.leave(first)
    queue.cancel("a")
    assert (first.cancellation.is_set(), second.cancellation.is_set()) == (False, True)


@pytest.mark.parametrize("late", [False, True])
def test_a_cancellation_calls_what_it_is_to_end(late):
    cancellation, called = Cancellation(), []
    if late:
        cancellation.set()
    cancellation.calls(lambda: called.append(True))
    assert called == [True] * late
    cancellation.set()
    assert called


def test_runs_come_in_order():
    queue = RunQueue()
    first, second, third = (queue.join("a") for _ in range(3))
    assert (first.turn.is_set(), second.turn.is_set()) == (True, False)
    queue.leave(second)  # gives up waiting
    assert not third.turn.is_set()
    queue.leave(first)
    assert third.turn.is_set()


def test_models_are_loaded_once_per_choice(models):
    choice = Choice("model", "CPU", "CPU")
    pipeline = models.get(choice)
    assert models.holds(choice)
    assert models.get(choice) is pipeline
    lookup = models.get(Choice("prompt-lookup", "CPU", "CPU"))
    assert lookup.draft is None
    assert not models.holds(choice)


def test_a_pairing_is_for_the_drafters_with_a_draft_model(tiny_pair):
    models = LoadedModels(
        str(tiny_pair[0]), str(embedded_folder("draft")), {}, pairing="retokenize"
    )
    assert models.get(Choice("model", "CPU", "CPU")).pairing == "retokenize"
    assert "Pairing: retokenize." in models.description
    assert models.get(Choice("suffix", "CPU", "CPU")).pairing is None
    assert "Pairing" not in models.description
    models.close()


def test_a_pair_is_gone_before_the_next_one_is_loaded(models, monkeypatch):
    held = models.get(Choice("model", "CPU", "CPU"))
    runners = [weakref.ref(held.main.runner), weakref.ref(held.draft.runner)]
    del held
    gone = []

    def load(*arguments, **options):
        gone.append([runner() is None for runner in runners])
        return SpeculativePipeline(*arguments, **options)

    monkeypatch.setattr("ov_specdec.demo.models.SpeculativePipeline", load)
    models.get(Choice("prompt-lookup", "CPU", "CPU"))
    assert gone == [[True, True]]


def test_a_draft_on_the_mains_device_has_none_of_its_own(models, monkeypatch):
    given = []

    def load(*arguments, **options):
        given.append(options["draft_device"])
        raise OptionError("that is all")

    monkeypatch.setattr("ov_specdec.demo.models.SpeculativePipeline", load)
    for choice in (("model", "CPU", "CPU"), ("model", "CPU", "GPU"), ("suffix", "CPU", "GPU")):
        with pytest.raises(OptionError, match="that is all"):
            models.get(Choice(*choice))
    assert given == [None, "GPU", None]  # to name it would keep profiles away


def test_models_are_prepared_before_the_first_run(models, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    models.get(Choice("model", "CPU", "CPU"))
    kept = (tmp_path / "ov-specdec" / "costs").iterdir()
    assert len([file for file in kept if not file.name.endswith(".passes.json")]) == 1


def test_models_that_come_after_the_end_are_freed(models, monkeypatch):
    pipelines = []

    def load(*arguments, **options):
        models.close()
        pipelines.append(SpeculativePipeline(*arguments, **options))
        return pipelines[0]

    monkeypatch.setattr("ov_specdec.demo.models.SpeculativePipeline", load)
    choice = Choice("model", "CPU", "CPU")
    with pytest.raises(SessionError, match="closed"):
        models.get(choice)
    with pytest.raises(SessionError, match="closed"):
        pipelines[0].generate("x")
    assert not models.holds(choice)


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_ctrl_c_works_after_another_thread_has_freed_the_models(tiny_pair):
    code = f"""
import signal
from threading import Thread
from ov_specdec.demo.models import Choice, LoadedModels

models = LoadedModels({str(tiny_pair[0])!r}, {str(tiny_pair[1])!r}, {{}})
models.get(Choice("model", "CPU", "CPU"))
other = Thread(target=models.close)
other.start()
other.join()
try:
    signal.raise_signal(signal.SIGINT)
except KeyboardInterrupt:
    print("interrupted")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("interrupted\n", 0), done.stderr


def test_loading_is_announced_where_there_is_something_to_load(models):
    service = DemoService(models)
    first = [line for _, line in service.compare("a", form())]
    assert first[0] == LOADING
    assert first[-1] == DONE
    assert LOADING not in [line for _, line in service.compare("a", form())]


def test_who_stops_while_waiting_is_told_so_at_once(models):
    service = DemoService(models)
    others = service.compare("a", form())
    while next(others)[1] == LOADING:
        pass
    waiting = service.compare("b", form())
    assert next(waiting)[1] == WAITING
    rest = []
    thread = Thread(target=lambda: rest.extend(waiting), daemon=True)
    thread.start()
    service.cancel("b")
    thread.join(timeout=60)
    assert [line for _, line in rest] == [STOPPED]
    assert rest[0][0].plain.outcome == "not started"
    assert [line for _, line in others][-1] == DONE


def test_who_waits_goes_on_when_the_other_run_ends(models):
    service = DemoService(models)
    others = service.compare("a", form())
    next(others)
    waiting = service.compare("b", form())
    assert next(waiting)[1] == WAITING
    list(others)
    assert [line for _, line in waiting][-1] == DONE


def test_who_leaves_in_the_middle_frees_the_models_before_the_next_turn(models):
    class Watched(RunQueue):
        def leave(self, place):
            free.append(models.get(form().choice).generate("x", max_new_tokens=1).token_ids)
            super().leave(place)

    free = []
    leaving = DemoService(models, queue=Watched()).compare("a", form())
    while next(leaving)[1] == LOADING:
        pass
    leaving.close()
    assert len(free) == 1


def test_the_end_of_the_demo_ends_a_run_without_an_error(models):
    service = DemoService(models)
    running = service.compare("a", form())
    while next(running)[1] == LOADING:
        pass
    service.close()
    *_, (state, line) = running
    assert (state.plain.outcome, line) == ("cancelled", STOPPED)


@pytest.mark.parametrize(
    ("chosen", "complaint"),
    [
        ({"prompt": ""}, "the prompt is empty"),
        ({"prompt": "area " * 5000}, "shorten it"),
        ({"seed": "x"}, "seed 'x' must be a whole number"),
        ({"seed": "9" * 5000}, "seed '999"),
        ({"device": "NPU.7"}, "device 'NPU.7' is not available"),
    ],
)
def test_bad_input_is_named(models, chosen, complaint):
    with pytest.raises(SpecdecError, match=complaint):
        list(DemoService(models).compare("a", form(**chosen)))


def test_the_sweep_measures_every_temperature(pipeline):
    states = list(sweep(pipeline, form(max_new_tokens=4).settings, Cancellation()))
    assert len(states) == NUM_STEPS == REPEATS * len(TEMPERATURES)
    assert [len(points) for points in states[:2]] == [1, 2]
    assert [point.temperature for point in states[-1]] == list(TEMPERATURES)
    assert all(point.plain > 0 and point.speculative > 0 for point in states[-1])
    assert all(0 <= point.acceptance <= 1 for point in states[-1])


def test_the_sweep_runs_full_lengths_without_a_seed(pipeline, monkeypatch):
    given, stream = [], SpeculativePipeline.stream

    def watch(pipeline, prompt, **options):
        given.append(options)
        return stream(pipeline, prompt, **{**options, "max_new_tokens": 1})

    monkeypatch.setattr(SpeculativePipeline, "stream", watch)
    list(sweep(pipeline, form(max_new_tokens=500, seed="7").settings, Cancellation()))
    assert len(given) == 2 * NUM_STEPS
    assert all(options["ignore_eos"] and options.get("seed") is None for options in given)
    assert {options["max_new_tokens"] for options in given} == {MAX_TOKENS}


def test_the_sweep_takes_up_a_conversation(chat_service):
    conversation = Conversation()
    sweeping = {"prompt": conversation, "max_new_tokens": 2}
    with pytest.raises(OptionError, match="send a message first"):
        next(chat_service.sweep("a", form(**sweeping)))
    say(chat_service, conversation, "What is it?")
    *_, (points, line) = chat_service.sweep("a", form(**sweeping))
    assert ([point.temperature for point in points], line) == (list(TEMPERATURES), DONE)


def test_the_sweep_can_be_cancelled(pipeline):
    cancellation = Cancellation()
    steps = sweep(pipeline, form(max_new_tokens=4).settings, cancellation)
    next(steps)
    cancellation.set()
    assert list(steps) == []


def test_without_gradio_the_extra_is_named():
    code = (
        "import sys; sys.modules['gradio'] = None; sys.argv = ['ov-specdec', 'demo']; "
        "from ov_specdec.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 2
    assert "in a checkout: pip install '.[demo]'" in done.stderr


def test_charts_add_up(pipeline):
    *_, last = compare(pipeline, form().settings, Cancellation())
    stats = last.speculative.stats
    table = charts.draft_tokens_by_round(last.speculative)
    sums = table.groupby("draft token")["draft tokens"].sum()
    assert sums["accepted"] == stats.accepted
    assert sums["rejected"] == stats.drafted - stats.accepted
    seconds = charts.time_by_part(last).groupby("method")["seconds"].sum()
    assert seconds["speculative"] == pytest.approx(stats.seconds)
    assert seconds["plain"] == pytest.approx(last.plain.stats.seconds)


def test_a_chart_counts_only_what_the_text_kept():
    rounds = [RoundStats(0, 0, 1, *[0.0] * 4), RoundStats(4, 4, 2, *[0.0] * 4)]
    ended = Chunk("x", [1], "draft", [], "stop", GenerationStats(3, rounds))
    table = charts.draft_tokens_by_round(followed([ended]))
    assert list(table["draft tokens"]) == [2, 0]


def test_charts_of_nothing_are_empty():
    assert charts.draft_tokens_by_round(Run()).empty
    assert charts.time_by_part(Comparison()).empty
