"""The line of statistics, its warnings, and what `compare` says where nothing was drafted."""

import re
from dataclasses import replace
from types import SimpleNamespace

import pytest

from ov_specdec.cli.compare import describe, make_report
from ov_specdec.cli.generate import estimate_speedup, figures, warnings_of
from ov_specdec.planning.costs import CostCurve, PassCurve
from ov_specdec.results.chunks import Chunk, GenerationResult
from ov_specdec.results.parts import Reasoning
from ov_specdec.results.stats import GenerationStats
from tests.support.rounds import a_round

CURVE = CostCurve(PassCurve({1: 1.0, 4: 2.0}), PassCurve({1: 0.1}), is_measured=True)
PREFILL = a_round(seconds=5.0, reason="prefill")


def result(*rounds, limit="max_new_tokens", reason="length"):
    stats = GenerationStats(9, [PREFILL, *rounds], length_limit=limit)
    return GenerationResult("text", [1] * stats.generated_tokens, reason, stats)


def models(curve=CURVE, drafter="model"):
    main = SimpleNamespace(kv="paged", reason="as asked")
    return SimpleNamespace(drafter=drafter, costs=curve, main=main, load_seconds=1.0, profile=None)


DRAFTED = [a_round(3, 2, 4.0, 0.6, reason="pays", planned=3)] * 10
LOST = [a_round(reason="loses", source="")] * 10


def test_four_figures_tell_how_fast_it_was():
    # At a pace of half of the curve's, 30 tokens take 60 seconds plainly, and took 46.
    line = figures(result(*DRAFTED), models())
    assert line == (
        "1 tokens/s, about 1.3 times plain, 67% of drafts accepted, 2.8 tokens per pass"
    )


def test_what_is_not_known_is_left_out():
    assert "plain" not in figures(result(*DRAFTED), models(CostCurve(CURVE.main, CURVE.draft)))
    assert "plain" not in figures(result(*DRAFTED[:4]), models())
    disturbed = [a_round(3, 2, 6.0, 0.6, reason="pays")] * 2
    assert "plain" not in figures(result(*DRAFTED, *disturbed), models())
    assert figures(result(*LOST), models(drafter="none")) == "1 tokens/s, 1.0 tokens per pass"


def test_drafting_that_was_stopped_is_said():
    line = figures(result(*DRAFTED[:2], *LOST), models())
    assert line == ("1 tokens/s, drafting was stopped, as it did not pay: 67% of drafts accepted")
    assert "stopped" not in figures(result(*DRAFTED, *LOST), models())


def test_it_says_why_nothing_was_drafted():
    assert "not speculated: would be slower" in figures(result(*LOST), models())
    unmatched = [a_round(reason="unmatched", source="")] * 3
    assert figures(result(*unmatched), models()).endswith("nothing in the text repeats")
    assert figures(result(), models()).endswith("not speculated: the output is too short")


@pytest.mark.parametrize(
    ("limit", "cut", "remedy"),
    [
        ("kv_cache_size", "cut by memory: ", "raise --kv-cache-size"),
        ("max_model_len", "cut by context: ", "give a shorter prompt"),
    ],
)
def test_an_output_that_was_cut_says_so(limit, cut, remedy):
    done = result(*DRAFTED, limit=limit)
    assert figures(done, models()).startswith(cut)
    (warning,) = warnings_of(done)
    assert warning.startswith("warning: cut after 31 tokens: ")
    assert warning.endswith(remedy)
    ended = result(*DRAFTED, limit=limit, reason="stop")
    assert not figures(ended, models()).startswith("cut")
    assert not list(warnings_of(ended))


def test_passes_that_others_shared_tell_no_speed():
    shared = [a_round(3, 2, 4.0, num_sequences=2)] * 10
    assert estimate_speedup(result(*shared).stats, CURVE) is None


def test_a_ratio_is_of_tokens_per_second_with_its_spread():
    # 31 and 16 tokens in 51 seconds, as samples may be of different lengths.
    fast, slow = result(*DRAFTED), result(*[a_round(3, 2, 9.2)] * 5)
    report = make_report([{"plain": run, "speculative": fast} for run in (slow, fast, slow)])
    assert report["ratio"] == pytest.approx(31 / 16)
    line = describe({**report, "sampled": True, "batch_invariant": "on"})[-1]
    assert re.match(r"ratio        1\.94 \(1\.00 to 1\.94\)", line)
    lines = describe({**report, "sampled": False, "batch_invariant": "on"})
    assert "--- medians of 3 interleaved runs of each, after a warm-up ---" in lines


def test_an_answer_that_was_cut_while_it_reasoned_shows_its_reasoning():
    thinking = Chunk("", [1], "plain", parts=(Reasoning("Hm"),))
    cut = replace(result(*DRAFTED), text="", chunks=[thinking])
    report = make_report([{"plain": cut, "speculative": cut}])
    assert describe({**report, "sampled": False, "batch_invariant": "on"})[1] == "Hm"
