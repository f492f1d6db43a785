"""The demo without a browser: runs, comparisons, visitors, models, the sweep."""

import subprocess
import sys

import pytest

from ov_specdec import SpeculativePipeline
from ov_specdec.demo import charts
from ov_specdec.demo.comparison import Comparison, compare
from ov_specdec.demo.desk import LOADING, Desk, Form
from ov_specdec.demo.models import Choice, ModelShelf
from ov_specdec.demo.run import Piece, Run
from ov_specdec.demo.settings import Settings
from ov_specdec.demo.stops import Stops
from ov_specdec.demo.sweep import NUM_STEPS, REPEATS, TEMPERATURES, sweep
from ov_specdec.errors import SpecdecError
from ov_specdec.generation import Chunk
from ov_specdec.stats import GenerationStats, RoundStats
from tests.chunks import CHUNKS, followed, never, spell


@pytest.fixture(scope="module")
def pipeline(tiny_pair):
    return SpeculativePipeline(*tiny_pair, precision="exact")


@pytest.fixture
def shelf(tiny_pair):
    return ModelShelf(*map(str, tiny_pair), {"precision": "exact"})


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


def test_a_run_ends_within_a_piece_of_the_wish_to_stop():
    wishes = iter([False, False, True])
    closed = []

    def chunks():
        try:
            yield from CHUNKS
        finally:
            closed.append(True)

    run = Run()
    for _ in run.follow(chunks(), spell, lambda: next(wishes)):
        pass
    assert run.token_ids == [1, 2, 3]
    assert run.outcome == "stopped"
    assert closed == [True]


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
        for state in compare(pipeline, form().settings, never)
    ]
    assert list(dict.fromkeys(outcomes)) == [
        ("running", "waiting"),
        ("length", "waiting"),
        ("length", "running"),
        ("length", "length"),
    ]


def test_both_methods_write_the_same_and_only_one_drafts(pipeline):
    *_, last = compare(pipeline, form().settings, never)
    assert last.plain.token_ids == last.speculative.token_ids
    assert last.note == "Both texts are the same, token for token."
    assert last.plain.accepted == 0 < last.speculative.accepted
    assert last.ratio == last.speculative.tokens_per_second / last.plain.tokens_per_second


@pytest.mark.parametrize(
    ("samples", "explanation"),
    [(True, "each is a draw of its own"), (False, "part after 5 tokens")],
)
def test_a_difference_is_explained(samples, explanation):
    other = [*CHUNKS[:-1], Chunk("g", [7], "bonus", [], "length", CHUNKS[-1].stats)]
    assert explanation in Comparison(samples, followed(), followed(other)).note


def test_a_text_that_only_ends_earlier_parts_at_its_end():
    shorter = [*CHUNKS[:-2], Chunk("e", [5], "bonus", [], "stop", CHUNKS[-1].stats)]
    assert "part after 5 tokens" in Comparison(False, followed(), followed(shorter)).note


def test_an_unfinished_comparison_has_no_ratio_and_no_note():
    stopped = followed(should_stop=iter([False, True]).__next__)
    comparison = Comparison(False, followed(), stopped)
    assert comparison.ratio is None
    assert comparison.note == ""


def test_a_wish_to_stop_ends_both_runs(pipeline):
    wishes = iter([False] * 3 + [True] * 99)
    *_, last = compare(pipeline, form().settings, wishes.__next__)
    assert 0 < len(last.plain.token_ids) < 24
    assert (last.plain.outcome, last.speculative.outcome) == ("stopped", "stopped")


def test_options_without_effect_are_left_out():
    assert Settings("x", top_p=0.5, seed=3).options() == {
        "max_new_tokens": 128,
        "num_assistant_tokens": "auto",
    }
    sampled = Settings("x", temperature=0.7, top_p=0.5, top_k=9, seed=3).options()
    assert sampled["top_p"] == 0.5
    assert (sampled["temperature"], sampled["top_k"], sampled["seed"]) == (0.7, 9, 3)


def test_one_visitors_wish_is_not_anothers():
    stops = Stops()
    stops.arm("a")
    stops.arm("b")
    stops.stop("a")
    assert stops.watch("a").is_set()
    assert not stops.watch("b").is_set()
    stops.arm("a")
    assert not stops.watch("a").is_set()


def test_who_leaves_stops():
    stops = Stops()
    stops.arm("a")
    wish = stops.watch("a")
    stops.leave("a")
    stops.leave("a")
    assert wish.is_set()
    assert not stops.watch("a").is_set()


def test_models_are_loaded_once_per_choice(shelf):
    choice = Choice("model", "CPU", "CPU")
    pipeline = shelf.get(choice)
    assert shelf.holds(choice)
    assert shelf.get(choice) is pipeline
    lookup = shelf.get(Choice("prompt-lookup", "CPU", "CPU"))
    assert lookup.draft is None
    assert not shelf.holds(choice)


def test_loading_is_announced_where_there_is_something_to_load(shelf):
    desk = Desk(shelf)
    first = [line for _, line in desk.compare("a", form())]
    assert first[0] == LOADING
    assert first[-1] == "Done."
    assert LOADING not in [line for _, line in desk.compare("a", form())]


def test_a_stop_before_the_turn_ends_the_run_at_once(shelf):
    desk = Desk(shelf)
    desk.stops.arm("a")
    desk.stops.stop("a")
    (*_, (state, line)) = desk.compare("a", form())
    assert line == "Stopped."
    assert state.plain.token_ids == state.speculative.token_ids == []


@pytest.mark.parametrize(
    ("chosen", "complaint"),
    [
        ({"prompt": ""}, "the prompt is empty"),
        ({"prompt": "area " * 5000}, "shorten the prompt"),
        ({"seed": "x"}, "seed 'x' must be a whole number"),
        ({"device": "NPU.7"}, "device 'NPU.7' is not available"),
    ],
)
def test_bad_input_is_named(shelf, chosen, complaint):
    with pytest.raises(SpecdecError, match=complaint):
        list(Desk(shelf).compare("a", form(**chosen)))


def test_the_sweep_measures_every_temperature(pipeline):
    states = list(sweep(pipeline, form(max_new_tokens=4).settings, never))
    assert len(states) == NUM_STEPS == REPEATS * len(TEMPERATURES)
    assert [len(points) for points in states[:2]] == [1, 2]
    assert [point.temperature for point in states[-1]] == list(TEMPERATURES)
    assert all(point.plain > 0 and point.speculative > 0 for point in states[-1])
    assert all(0 <= point.acceptance <= 1 for point in states[-1])


def test_the_sweep_can_be_stopped(pipeline):
    wishes = iter([False, True])
    assert len(list(sweep(pipeline, form(max_new_tokens=4).settings, wishes.__next__))) == 1


def test_without_gradio_the_extra_is_named():
    code = (
        "import sys; sys.modules['gradio'] = None; sys.argv = ['ov-specdec', 'demo']; "
        "from ov_specdec.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 2
    assert "pip install 'ov-specdec[demo]'" in done.stderr


def test_charts_add_up(pipeline):
    *_, last = compare(pipeline, form().settings, never)
    stats = last.speculative.stats
    table = charts.candidates_by_round(last.speculative)
    sums = table.groupby("candidate")["candidates"].sum()
    assert sums["accepted"] == stats.accepted
    assert sums["rejected"] == stats.drafted - stats.accepted
    seconds = charts.time_by_part(last).groupby("method")["seconds"].sum()
    assert seconds["speculative"] == pytest.approx(stats.seconds)
    assert seconds["plain"] == pytest.approx(last.plain.stats.seconds)


def test_a_chart_counts_only_what_the_text_kept():
    rounds = [RoundStats(0, 0, 1, *[0.0] * 4), RoundStats(4, 4, 2, *[0.0] * 4)]
    ended = Chunk("x", [1], "draft", [], "stop", GenerationStats(3, rounds))
    table = charts.candidates_by_round(followed([ended]))
    assert list(table["candidates"]) == [2, 0]


def test_charts_of_nothing_are_empty():
    assert charts.candidates_by_round(Run()).empty
    assert charts.time_by_part(Comparison()).empty
