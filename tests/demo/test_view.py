"""The HTML of the demo."""

from ov_specdec.demo import view
from ov_specdec.demo.comparison import Comparison
from ov_specdec.results.chunks import MEANINGS, Chunk, as_html
from ov_specdec.results.stats import GenerationStats, RoundStats
from tests.support.chunks import CANCELLED, followed


def test_a_pane_marks_origins_and_escapes_the_text():
    html = view.pane([("", followed())], "Speculative")
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
    plain, speculative = view.panes(turns)
    places = [plain.index(text) for text in ("&lt;1&gt;", ">bc<", "&lt;f&gt;", ">2<")]
    assert [*places, plain.rindex(">bc<")] == sorted({*places, plain.rindex(">bc<")})
    assert as_html([("draft", "bc")]) in speculative
    assert "<1>" not in plain + speculative
    assert "<dd>3</dd>" in plain
    assert "<dd>0</dd>" in speculative
    assert 'data-outcome="not started"' in speculative
    assert (plain.count(">stopped<"), speculative.count(">stopped<")) == (2, 1)


def test_rounds_show_what_was_rejected_in_front_of_its_correction():
    html = view.rounds(Comparison(speculative=followed()))
    assert html.count("<li>") == 3
    assert f"{as_html([('draft', 'bc')])}<del>hi</del>{as_html([('correction', 'd')])}" in html


def test_the_legend_explains_every_mark():
    html = view.legend()
    assert all(as_html([(origin, meaning)]) in html for origin, meaning in MEANINGS.items())
    assert "<del>" in html


def test_the_verdict_gives_ratio_and_note():
    plain, speculative = followed(), followed()
    plain.seconds, speculative.seconds = 3.0, 2.0
    html = view.verdict(Comparison(plain=plain, speculative=speculative))
    assert "<strong>1.50\N{MULTIPLICATION SIGN}</strong>" in html
    assert "the same, token for token" in html


def test_the_details_give_draft_lengths_and_models():
    assert "Draft length" not in view.details(Comparison(models="KV cache: <paged>."))
    rounds = [RoundStats(*[1] * 7, planned=planned) for planned in (0, 0, 4, 4, 3)]
    ended = Chunk("x", [1], "draft", [], "stop", GenerationStats(3, rounds))
    html = view.details(Comparison(models="KV cache: <paged>.", speculative=followed([ended])))
    assert "Draft lengths, in order: 0, 4, 3. KV cache: &lt;paged&gt;." in html
