"""Which drafters pay: the verdict on made-up gains, and the table on a tiny pair."""

import json
import re

import pytest

from ov_specdec.cli.tune import describe, gain_row
from ov_specdec.errors import OptionError, TokenizerMismatchError
from ov_specdec.files import as_argument
from ov_specdec.loading.locate import embedded_folder
from ov_specdec.pipeline import SpeculativePipeline
from ov_specdec.tuning import Budget, Candidate, Gain, Tuner, candidates, decide, make_candidates
from ov_specdec.tuning.candidates import NUM_TOKENS, measure_gain
from tests.command_line import run

SUFFIX = Candidate("suffix")


def gain(*ratios, candidate=SUFFIX, speed=20.0):
    return Gain(candidate, speed, 10.0, ratios, 1.5)


def always(ratio, candidate=SUFFIX):
    return gain(*4 * [ratio], candidate=candidate, speed=10.0 * ratio)


def test_a_gain_within_the_noise_is_none():
    assert not gain(0.5, 1.0, 1.02, 1.02).pays
    assert not gain(1.02, 1.02, 1.02, 1.02, 3.0).pays, "the median counts"
    assert gain(0.5, 1.1, 1.2, 1.2, 1.2).pays
    assert not gain(0.5, 0.9, 1.2, 1.2, 1.2).pays, "a quarter of the runs was slower"


def told(*gains, output=None):
    return describe(decide(gains), output)


def test_a_few_runs_say_nothing():
    assert not gain(1.5, 1.5, 1.5).pays
    assert told(gain(1.5, 1.5, 1.5)).startswith("not clear: --drafter suffix is 1.50 times")
    assert "give more --seconds" in told(always(0.9), gain(0.5))
    expected = "give --drafter suffix: 1.20 times as fast as plain decoding"
    assert told(always(1.2), gain(0.5)).startswith(expected)


def test_noise_around_plain_decoding_is_not_clear():
    assert told(gain(0.8, 0.8, 1.3, 1.3)).startswith("not clear")


def test_the_best_candidate_is_recommended_with_its_draft(tmp_path):
    own = always(1.4, Candidate("model", tmp_path / "own-int4"))
    number = "1.40 times as fast as plain decoding (1.40 to 1.40)"
    assert told(always(1.2), own) == f"give --drafter model --draft {own.candidate.draft}: {number}"
    noisy = gain(0.5, 0.5, 9.0, 9.0, 9.0)
    assert told(noisy, always(1.2, Candidate("both", tmp_path))).startswith("give --drafter both")
    paired = always(1.3, Candidate("model", tmp_path / "other", "auto"))
    assert "other --pairing auto: 1.30" in told(paired)
    assert told(always(0.9), always(1.01)).startswith("give --drafter none: the best other")


def test_of_those_that_pay_the_fastest_is_recommended(tmp_path):
    tuned = Candidate("model", tmp_path / "draft", profile=tmp_path / "trial.json")
    gains = [Gain(SUFFIX, 14.0, 10.0, 4 * (1.4,), 1.5), Gain(tuned, 24.0, 20.0, 4 * (1.2,), 1.5)]
    assert f"draft --profile {as_argument('my profile.json')}: 1.20" in told(
        *gains, output="my profile.json"
    )
    assert "--profile" not in told(*gains), "it is taken up by itself"
    gains.append(Gain(Candidate("both", tmp_path), 7.5, 10.0, 4 * (0.75,), 1.5))
    assert "--drafter model" in told(*gains), "what does not pay is not"
    both = Candidate("both", tmp_path / "draft", profile=tuned.profile)
    gains.append(Gain(both, 21.0, 15.0, 4 * (1.4,), 1.5))
    assert "--drafter both" in told(*gains), "the machine was slower, but not the drafter"


def test_the_profile_that_was_written_is_that_of_the_first_pair(tmp_path):
    paired = [(tmp_path / "draft", None), (tmp_path / "other", "auto")]
    written = tmp_path / "profile.json"
    assert make_candidates(paired, written) == [
        Candidate("model", tmp_path / "draft", None, written),
        SUFFIX,
        Candidate("model", tmp_path / "other", "auto"),
        Candidate("both", tmp_path / "draft", None, written),
    ]
    assert make_candidates([], None) == [SUFFIX]


def test_a_candidate_is_measured_with_its_profile(tiny_pair, tmp_path):
    candidate = Candidate("model", tiny_pair[1], profile=tmp_path / "missing.json")
    with pytest.raises(OptionError, match=r"profile .*missing\.json' cannot be read"):
        measure_gain(tiny_pair[0], candidate, "CPU", ["x = "], seconds=0.0, budget=Budget(9.0))


def test_the_table_has_all_that_were_measured(tmp_path):
    own = gain(0.6, 0.8, 0.6, 0.8, candidate=Candidate("model", tmp_path / "own-int4"))
    rows = [gain_row(each) for each in (gain(1.5, 1.1, 1.2, 1.1, 1.4), own)]
    assert rows[0] == ("suffix", "20.0", "10.0", "1.20", "1.10 to 1.40", "5", "1.50")
    assert (rows[1][0], rows[1][3]) == ("model own-int4", "0.70")


def test_a_candidate_is_measured_against_plain_decoding(tiny_pair):
    candidate = Candidate("model", tiny_pair[1])
    found = measure_gain(
        tiny_pair[0], candidate, "CPU", ["def a(", "x = "], seconds=2.0, budget=Budget(9.0)
    )
    assert len(found.ratios) > 2, "prompts are measured again while there is time"
    assert all(ratio > 0 for ratio in found.ratios)
    assert min(found.ratios) <= found.speed / found.plain_speed <= max(found.ratios)
    assert 1.0 <= found.tokens_per_pass <= NUM_TOKENS


def test_a_candidate_is_measured_with_static_shapes(tiny_pair, monkeypatch):
    loaded = []

    class Watched(SpeculativePipeline):
        def prepare(self, *given, **named):
            curve = super().prepare(*given, **named)
            loaded.append((self.main.runner.static_shapes, self.pairing))
            return curve

    monkeypatch.setattr(candidates, "SpeculativePipeline", Watched)
    other = Candidate("model", embedded_folder("draft"), "retokenize")
    measure_gain(
        tiny_pair[0], other, "CPU", ["x = "], seconds=0.0, budget=Budget(9.0), static_shapes=[2]
    )
    [(sizes, pairing)] = loaded
    assert sizes - {1} == {2}  # that of two may serve single tokens too
    assert pairing == "retokenize"


def test_the_acceptance_of_a_pairing_is_measured_with_that_pairing(tiny_pair):
    models = tiny_pair[0], embedded_folder("draft")
    with pytest.raises(TokenizerMismatchError, match="pairing='auto'"):
        Tuner(*models, "CPU", budget=Budget(1.0), note=print)
    tuner = Tuner(*models, "CPU", budget=Budget(1.0), note=print, pairing="retokenize")
    # The draft's own ids would be taken for the main model's, and never be accepted.
    assert tuner._measure_acceptance() > 0.0


def test_when_time_is_up_one_prompt_was_measured(tiny_pair):
    found = measure_gain(
        tiny_pair[0],
        Candidate("suffix"),
        "CPU",
        ["def a(", "x = "],
        seconds=0.0,
        budget=Budget(9.0),
    )
    assert len(found.ratios) == 1


def test_a_prompt_that_fills_the_context_is_refused(tiny_pair):
    prompt = "a b c d e f g h " * 15
    with pytest.raises(OptionError, match=r"context"):
        measure_gain(
            tiny_pair[0], Candidate("suffix"), "CPU", [prompt * 5], seconds=0.0, budget=Budget(9.0)
        )


@pytest.fixture
def tune_drafters(tiny_pair, tmp_path, monkeypatch):
    """Compares the drafters of a main model, for whom there is always some time."""
    monkeypatch.setattr(Budget, "left", 0.5)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("def area(\n")
    options = ("--prompt-file", prompts, "--other-draft", tiny_pair[1], "--seconds", 1)
    return lambda *more: run("tune", tiny_pair[0], *options, *more)


def test_without_a_draft_tune_compares_drafters_and_writes_no_profile(
    tune_drafters, tiny_pair, tmp_path
):
    done = tune_drafters()
    assert done.returncode == 0, done.stderr
    rows = [line for line in done.stdout.splitlines() if line.startswith("| ")]
    assert [row.split(" | ")[0] for row in rows] == [
        "| drafter",
        "| ---",
        f"| model {tiny_pair[1].name}",
        "| suffix",
        f"| both {tiny_pair[1].name}",
    ]
    assert "\nverdict       " in done.stdout
    assert re.search(r"took          \d+ s of measurement, \d+ s of loading", done.stdout)
    assert not (tmp_path / "ov-specdec" / "profiles").exists()


@pytest.mark.deep
def test_such_a_comparison_is_told_as_json(tune_drafters):
    report = json.loads(tune_drafters("--json").stdout)
    assert [c["drafter"] for c in report["candidates"]] == ["model", "suffix", "both"]


@pytest.mark.parametrize("option", [("--pairing", "auto"), ("--output", "profile.json")])
def test_without_a_draft_tune_refuses_what_is_for_one(tiny_pair, option):
    done = run("tune", tiny_pair[0], *option)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{' '.join(option).replace('profile.json', repr('profile.json'))} has no effect" in (
        done.stderr.replace("\n", " ")
    )
