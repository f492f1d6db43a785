"""Which drafters pay: the verdict on made-up gains, and the table on a tiny pair."""

import re
from dataclasses import replace
from shlex import quote

import pytest

from ov_specdec.cli.tune import in_words
from ov_specdec.measure import drafters
from ov_specdec.measure.drafters import (
    Candidate,
    decide,
    make_candidates,
    measure_all,
    measure_gain,
    possible_vocabularies,
)
from ov_specdec.models.locate import embedded_folder
from tests.support.command_line import run
from tests.support.gains import SUFFIX, always, gain


def told(*gains, output=None):
    return in_words(*decide(gains), output)


@pytest.mark.parametrize(
    ("ratios", "pays"),
    [
        ((0.5, 1.0, 1.02, 1.02), False),
        ((1.02, 1.02, 1.02, 1.02, 3.0), False),  # the median counts
        ((0.5, 1.1, 1.2, 1.2, 1.2), True),
        ((0.5, 0.9, 1.2, 1.2, 1.2), False),  # a quarter of the turns was slower
        ((1.5, 1.5, 1.5), False),  # too few
    ],
)
def test_a_gain_within_the_noise_is_none(ratios, pays):
    assert gain(*ratios).pays is pays


def test_the_verdict_is_not_clear_where_turns_are_few_or_differ():
    assert told(gain(1.5, 1.5, 1.5)).startswith("not clear: --drafter suffix is 1.50 (1.50 to")
    assert "give more --seconds" in told(always(0.9), gain(0.5))
    assert told(gain(0.8, 0.8, 1.3, 1.3)).startswith("not clear")
    assert told(always(0.9), always(1.01)).startswith("give --drafter none: the best other")
    expected = "give --drafter suffix: 1.20 (1.20 to 1.20) times as fast as plain decoding"
    assert told(always(1.2), gain(0.5)) == expected


def test_of_those_that_pay_the_fastest_is_recommended_with_its_models(tmp_path):
    paired = always(1.3, Candidate("model", tmp_path / "other", "auto"))
    assert "other --pairing auto: 1.30" in told(paired, gain(0.5, 0.5, 9.0, 9.0, 9.0))
    tuned = Candidate("model", tmp_path / "draft", profile=tmp_path / "trial.json")
    gains = [always(1.4), always(1.2, tuned, plain=20.0)]
    assert told(*gains).startswith(f"give --drafter model --draft {tuned.draft}: 1.20")
    output = "my profile.json"  # without which it is taken up by itself
    assert f"draft --profile {quote(output)}: 1.20" in told(*gains, output=output)
    gains.append(always(0.75, Candidate("both", tmp_path)))
    assert "--drafter model" in told(*gains), "what does not pay is not"
    gains.append(always(1.4, replace(tuned, drafter="both"), plain=15.0))
    assert "--drafter both" in told(*gains), "the machine was slower, but not the drafter"


def test_only_the_first_pair_has_the_profile(tmp_path):
    paired = [(tmp_path / "draft", None), (tmp_path / "other", "auto")]
    written = tmp_path / "profile.json"
    assert make_candidates(paired, written) == [
        Candidate("both", tmp_path / "draft", None, written),
        Candidate("model", tmp_path / "draft", None, written),
        SUFFIX,
        Candidate("model", tmp_path / "other", "auto"),
    ]
    assert make_candidates([], None) == [SUFFIX]


def test_smaller_vocabularies_of_the_first_draft_come_last(tmp_path, monkeypatch):
    monkeypatch.setattr(drafters, "VOCABULARIES", (256, 257, 4095, 4096))
    draft = embedded_folder("draft")
    assert [*possible_vocabularies(draft, None)] == [257, 4095]
    assert [*possible_vocabularies(draft, "intersection")] == []
    paired = [(draft, None), (tmp_path / "other", None)]
    reduced = make_candidates(paired, None, [257, 4095])[-2:]
    assert reduced == [Candidate("model", draft, draft_vocabulary=n) for n in (257, 4095)]
    found = always(1.3, reduced[0])
    assert told(found).startswith(f"give --drafter model --draft {draft} --draft-vocabulary 257: ")
    assert (str(found.candidate), found.as_dict()["draft_vocabulary"]) == (
        "model draft, 257 tokens",
        257,
    )


def test_a_candidate_is_measured_against_plain_decoding(tiny_pair, monkeypatch):
    candidate = Candidate("model", tiny_pair[1])
    found = measure_gain(candidate, 0.0, ["def a("], {"main": tiny_pair[0]})
    assert (found.row.num_turns, found.plain.method) == (1, "plain"), "when time is up, one is done"
    assert found.row.method == f"model {tiny_pair[1].name}"
    assert found.plain.tokens_per_pass == 1.0 <= found.row.tokens_per_pass
    speeds = found.row.tokens_per_second.median, found.plain.tokens_per_second.median
    assert found.row.ratio.median == pytest.approx(speeds[0] / speeds[1])
    clock = iter(range(100))
    monkeypatch.setattr(drafters, "perf_counter", lambda: next(clock))
    found = measure_gain(SUFFIX, 5.0, ["a", "b"], {"main": tiny_pair[0]})
    assert found.row.num_turns == 6


def test_what_there_is_no_time_for_is_not_measured(monkeypatch):
    clock = iter([1.0, 4.0, 10.5])
    monkeypatch.setattr(drafters, "perf_counter", lambda: next(clock))
    shares, noted = [], []
    monkeypatch.setattr(
        drafters, "measure_gain", lambda candidate, share, *_: shares.append(share) or candidate
    )
    assert len(measure_all([SUFFIX] * 3, 10.0, (), {}, noted.append)) == 2
    assert shares == [3.0, 3.0]
    assert noted == [SUFFIX, SUFFIX]


@pytest.fixture
def tune_drafters(tiny_pair, tmp_path, monkeypatch):
    """Compares the drafters of a main model."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("def area(\n")
    options = ("--prompt-file", prompts, "--other-draft", tiny_pair[1], "--seconds", 600)
    measure = drafters.measure_gain
    monkeypatch.setattr(drafters, "measure_gain", lambda own, _, *given: measure(own, 0.0, *given))
    return lambda *more: run("tune", tiny_pair[0], *options, *more)


def test_without_a_draft_tune_compares_drafters_and_writes_no_profile(
    tune_drafters, tiny_pair, tmp_path
):
    done = tune_drafters()
    assert done.returncode == 0, done.stderr
    rows = [line.split("|")[0].strip() for line in done.stdout.splitlines() if "|" in line]
    name = tiny_pair[1].name
    assert rows[2:] == ["plain", f"both {name}", f"model {name}", "suffix"]
    assert "\nverdict       " in done.stdout
    assert re.search(r"\ntook          \d+ s\n", done.stdout)
    assert not [file for file in tmp_path.rglob("*.json") if '"profile"' in file.read_text()]
