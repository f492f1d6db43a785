"""The demo without a browser: runs, comparisons, conversations, the sweep."""

import logging
import subprocess
import sys
from functools import partial

import httpx
import pytest

from ov_specdec import SpeculativePipeline
from ov_specdec.cli import demo as cli_demo
from ov_specdec.demo.comparison import (
    NUM_STEPS,
    SWEEP_TOKENS,
    SWEPT_TEMPERATURES,
    Comparison,
    Run,
    messages_of,
    options_of,
    sweep,
)
from ov_specdec.demo.panes import details_html, pane_html, rounds_html
from ov_specdec.errors import OptionError
from ov_specdec.results.chunks import Chunk
from ov_specdec.results.origins import as_html
from ov_specdec.results.stats import GenerationStats, RoundStats
from ov_specdec.server.settings import LOOPBACK_NAMES
from tests.support.chats import ANSWER, SYSTEM, USER
from tests.support.command_line import AS_ARGUMENT, AS_OPTION, refused, run

CHUNKS = [
    Chunk("a", [1], "plain"),
    Chunk("bc", [2, 3], "draft"),
    Chunk("d", [4], "correction", [8, 9]),
    Chunk("e", [5], "draft"),
    Chunk("<f>", [6], "bonus", [], "length", GenerationStats(3, [RoundStats(*[1] * 7)])),
]
CANCELLED = [*CHUNKS[:2], Chunk("", [], "plain", [], "cancelled", GenerationStats(3))]


def spell(ids):
    return "".join(chr(ord("a") + token - 1) for token in ids)


def followed(chunks=CHUNKS):
    run = Run()
    for _ in run.follow(chunk for chunk in chunks):
        pass
    return run


@pytest.fixture(scope="module")
def pipeline(tiny_pair):
    return SpeculativePipeline(*tiny_pair, precision="exact")


def form(**chosen):
    values = {
        "max_new_tokens": 24,
        "draft_length": 3,
        "temperature": 0,
        "top_p": 1,
        "top_k": 0,
        "seed": None,
    }
    return {**values, **chosen}


def states(comparison, pipeline, prompt="def area(", **chosen):
    """Runs a comparison; gives it back after each piece."""
    stream = partial(pipeline.stream, prompt)
    return comparison.compare(stream, options_of(form(**chosen)))


def compared(pipeline, prompt="def area(", **chosen):
    *_, last = states(Comparison(), pipeline, prompt, **chosen)
    return last


def test_a_run_keeps_what_its_chunks_bring():
    found = followed()
    assert found.output.token_ids == [1, 2, 3, 4, 5, 6]
    assert found.outcome == "length"
    assert found.output.stats is CHUNKS[-1].stats
    texts = [[chunk.text for chunk in chunks] for chunks in found.rounds]
    assert texts == [["a"], ["bc", "d"], ["e", "<f>"]]


@pytest.mark.parametrize("stops", [False, True])
def test_a_run_that_ends_or_is_stopped_closes_the_stream(stops):
    closed, own = [], Run()

    def chunks():
        try:
            yield from CHUNKS
        finally:
            closed.append(True)

    following = own.follow(chunks())
    for _ in following:
        if stops:
            following.close()
    assert own.output.token_ids == ([1] if stops else [1, 2, 3, 4, 5, 6])
    assert closed == [True]


def test_plain_decoding_ends_before_speculation_begins(pipeline):
    outcomes = [
        (state.plain.outcome, state.speculative.outcome, state.status)
        for state in states(Comparison(), pipeline)
    ]
    assert list(dict.fromkeys(outcomes)) == [
        ("running", "not started", "1 of 2: plain decoding."),
        ("length", "not started", "1 of 2: plain decoding."),
        ("length", "running", "2 of 2: speculative decoding."),
        ("length", "length", "Done."),
    ]


def test_both_methods_write_the_same_and_only_one_drafts(pipeline):
    last = compared(pipeline)
    assert last.plain.output.token_ids == last.speculative.output.token_ids
    assert last.note == "Both texts are the same, token for token."
    assert last.plain.output.stats.accepted == 0 < last.speculative.output.stats.accepted
    assert last.ratio == last.speculative.tokens_per_second / last.plain.tokens_per_second
    assert last.speculative.output.stats.cached_tokens == 0  # both prefill


@pytest.mark.parametrize(
    ("samples", "explanation"),
    [(True, "independent samples from the same"), (False, "differ after 5 tokens")],
)
def test_a_difference_is_explained(samples, explanation):
    other = [*CHUNKS[:-1], Chunk("g", [7], "bonus", [], "length", CHUNKS[-1].stats)]
    runs = {"plain": followed(), "speculative": followed(other)}
    assert explanation in Comparison(samples=samples, **runs).note


def test_a_stop_ends_both_runs(pipeline):
    comparison = Comparison()
    running = states(comparison, pipeline)
    next(running)
    running.close()  # as gradio does with a run that is cancelled
    assert 0 < len(comparison.plain.output.token_ids) < 24
    assert (comparison.plain.outcome, comparison.speculative.outcome) == 2 * ("cancelled",)
    assert (comparison.status, comparison.speculative.chunks) == ("Stopped.", [])
    assert compared(pipeline).status == "Done."  # the models are free again


def test_the_end_of_the_models_ends_a_run_without_an_error(tiny_pair):
    pipeline = SpeculativePipeline(*tiny_pair)
    running = states(Comparison(), pipeline)
    next(running)
    pipeline.close()
    assert [last.status for last in running] == ["Stopped."]


def asked(message, answer=""):
    chunks = [Chunk(answer, [1], "plain", [], "stop", GenerationStats(1))]
    return Comparison(message=message, plain=followed(chunks))


def test_a_turn_is_asked_with_the_turns_before_it():
    stopped, last = (Comparison(message=text) for text in ("Never mind", "And the other one?"))
    turns = [asked(USER["content"], ANSWER["content"]), stopped, last]
    messages = [USER, ANSWER, {"role": "user", "content": "And the other one?"}]
    assert messages_of(turns) == messages_of(turns, " \n") == messages
    assert messages_of(turns, SYSTEM["content"]) == [SYSTEM, *messages]


def test_options_without_effect_are_left_out():
    usual = {"max_new_tokens": None, "num_assistant_tokens": 3, "cache_prompt": False}
    assert options_of(form(max_new_tokens=0, top_p=0.5, seed=3)) == usual
    sampled = options_of(form(temperature=0.7, top_p=0.5, top_k=9.0, seed=3))
    given = {"max_new_tokens": 24, "temperature": 0.7, "top_p": 0.5, "top_k": 9, "seed": 3}
    assert sampled == {**usual, **given}


def test_the_page_answers_to_its_hosts_only(monkeypatch):
    import gradio

    from ov_specdec.demo.page import serving

    monkeypatch.setattr(logging.getLogger("uvicorn.error"), "disabled", False)  # as after it
    for hosts, status in ((LOOPBACK_NAMES, 400), (("*",), 200)):
        with gradio.Blocks(analytics_enabled=False) as page:
            gradio.Markdown("x")
        with serving(page, hosts, server_name="127.0.0.1") as address:
            for path in ("", "config", "gradio_api/info"):
                told = [
                    httpx.get(address + path, headers={"host": host}).status_code
                    for host in ("localhost:7860", "127.0.0.1", "evil.example:7860")
                ]
                assert told == [200, 200, status]


@pytest.mark.parametrize(
    ("given", "hosts"),
    [
        ({}, LOOPBACK_NAMES),
        ({"host": "::1"}, LOOPBACK_NAMES),
        ({"host": "192.0.2.1"}, ("*",)),
        ({"share": True}, ("*",)),
    ],
)
def test_the_page_is_for_this_machine_unless_others_shall_reach_it(given, hosts):
    launched = []

    class Page:
        def launch(self, **arguments):
            launched.append(arguments)
            raise OSError("enough")

    settings = {"host": "127.0.0.1", "port": None, "share": False, **given}
    with pytest.raises(OptionError, match="enough"):
        cli_demo._show(Page(), None, **settings)
    [guard] = launched[0]["app_kwargs"]["middleware"]
    assert guard.kwargs["allowed_hosts"] == hosts


def test_the_sweep_measures_every_temperature(pipeline, monkeypatch):
    given, generate = [], SpeculativePipeline.generate

    def watch(pipeline, prompt, **options):
        given.append(options)
        return generate(pipeline, prompt, **{**options, "max_new_tokens": 4})

    monkeypatch.setattr(SpeculativePipeline, "generate", watch)
    tables = list(sweep(pipeline, "def area(", form(max_new_tokens=500, seed=7)))
    assert [len(table) for table in tables[:2]] == [2, 4]
    assert list(tables[-1]["temperature"].unique()) == list(SWEPT_TEMPERATURES)
    assert (tables[-1]["tokens/s"] > 0).all()
    assert tables[-1]["acceptance"].between(0, 1).all()
    assert len(tables) == NUM_STEPS == len(given) // 2
    assert all(options["ignore_eos"] and options.get("seed") is None for options in given)
    assert {options["max_new_tokens"] for options in given} == {SWEEP_TOKENS}


def test_without_gradio_the_extra_is_named():
    code = (
        "import sys; sys.modules['gradio'] = None; sys.argv = ['ov-specdec', 'demo']; "
        "from ov_specdec.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 2
    assert "in a checkout: pip install '.[demo]'" in done.stderr


def test_wrong_models_are_refused_as_elsewhere():
    for before in (AS_ARGUMENT, AS_OPTION):
        done = run("demo", *before, "/no/where", "--draft", "/no/draft")
        assert "'/no/where' does not exist: give the folder" in refused(done)
    done = run("demo", "--draft", "folder")
    assert refused(done) == "error: --draft folder needs --main: give that too\n"


def test_a_pane_marks_origins_and_escapes_the_text():
    html = pane_html([Comparison(speculative=followed())], "speculative")
    assert as_html([("draft", "bc"), ("correction", "d")]) in html
    assert as_html([("bonus", "<f>")]) in html
    assert "<f>" not in html
    assert "<dt>accepted</dt><dd>60%</dd>" in html
    assert "<dt>tokens per pass</dt><dd>2.0</dd>" in html


def test_a_conversation_has_messages_above_answers_and_the_last_figures():
    turns = [
        Comparison(message="<1>", plain=followed(), speculative=followed(CANCELLED)),
        Comparison(message="2", plain=followed(CANCELLED)),
    ]
    plain, speculative = pane_html(turns, "plain"), pane_html(turns, "speculative")
    places = [plain.index(text) for text in ("&lt;1&gt;", ">bc<", "&lt;f&gt;", ">2<")]
    assert [*places, plain.rindex(">bc<")] == sorted({*places, plain.rindex(">bc<")})
    assert as_html([("draft", "bc")]) in speculative
    assert "<1>" not in plain + speculative
    assert "<dd>3</dd>" in plain
    assert "<dd>0</dd>" in speculative
    assert 'data-outcome="not started"' in speculative
    assert (plain.count(">stopped<"), speculative.count(">stopped<")) == (2, 1)


def test_rounds_show_what_was_rejected_in_front_of_its_correction():
    html = rounds_html(Comparison(speculative=followed()), spell)
    assert html.count("<li>") == 3
    assert f"{as_html([('draft', 'bc')])}<del>hi</del>{as_html([('correction', 'd')])}" in html


def test_the_details_give_draft_lengths_and_models():
    assert "Draft length" not in details_html(Comparison(models="KV cache: <paged>."))
    rounds = [RoundStats(*[1] * 7, planned=planned) for planned in (0, 0, 4, 4, 3)]
    ended = Chunk("x", [1], "draft", [], "stop", GenerationStats(3, rounds))
    html = details_html(Comparison(models="KV cache: <paged>.", speculative=followed([ended])))
    assert "Draft lengths, in order: 0, 4, 3. KV cache: &lt;paged&gt;." in html
