"""The search on made-up costs; and the command on a tiny pair."""

import math
from collections import Counter

import pytest

from ov_specdec.errors import DeviceError
from ov_specdec.measure import drafters, properties
from ov_specdec.measure.properties import (
    CHANGED,
    INVARIANT,
    PRICES,
    Found,
    Tuner,
    choices_on,
    search,
)
from ov_specdec.models.profile import Profile
from ov_specdec.planning.costs import CostCurve, PassCurve
from tests.support.command_line import run
from tests.support.gains import always, gain

CHOICES = {"A": ("1", "2"), "B": ("1",)}


def find(seconds, *, end=math.inf):
    """Search with the cost of a pass given by settings; a missing one is refused.

    Of several costs each measurement has the next, and the last one for ever.
    """
    measured = Counter()

    def measure(properties):
        key = "".join(f"{name}{value}" for name, value in properties.items())
        if key not in seconds:
            raise DeviceError("not here")
        several = seconds[key] if isinstance(seconds[key], list) else [seconds[key]]
        measured[key] += 1
        return several[min(measured[key], len(several)) - 1]

    return search(measure, CHOICES, end)


def test_the_best_values_are_combined_and_what_is_refused_is_passed_over():
    found = find({"": 9.0, "A1": 8.0, "A2": 7.0, "A2B1": 6.0})
    assert found.best == {"A": "2", "B": "1"}
    assert found.reason == "1.50 times as fast as the defaults in 2 repetitions"
    tried = [properties for properties, _ in found.trials]
    assert tried == [{}, {"A": "1"}, {"A": "2"}, {"A": "2", "B": "1"}]
    assert find({"": 9.0, "A2": 7.0, "A2B1": 8.0}).best == {"A": "2"}
    with pytest.raises(DeviceError, match="not here"):
        find({})


@pytest.mark.parametrize(
    ("defaults", "others"),
    [
        (9.0, [8.9]),
        (9.0, [5.0, 9.0]),  # by chance
        ([9.0, 9.0, 4.5], [3.9, 4.0, 8.0]),  # each once
        ([9.0, 9.2, 6.2], [3.9, 5.0, 4.9]),  # the defaults alone
        ([9.0, 8.2, 8.4], [3.9, 8.1, 4.1]),  # the others alone
        ([9.0, 9.0, 8.0], [3.9, 7.9, 7.0]),  # always faster, by less than they differ themselves
        ([9.0, 9.0, 9.0], [3.9, 8.8, 8.8]),  # alike, by too little
    ],
)
def test_settings_that_scatter_more_than_they_gain_are_not_kept(defaults, others):
    assert find({"": defaults, "A1": others}).best == {}


def test_the_search_ends_with_the_time(monkeypatch):
    clock = iter(range(100))
    monkeypatch.setattr(properties, "perf_counter", lambda: next(clock))
    # Each measurement takes a second here: a trial and two repetitions of both settings take five.
    assert len(find({"": 9.0, "A1": 1.0}, end=7.0).trials) == 2
    assert find({"": 9.0}, end=5.0).reason == "no other settings were tried"


def test_settings_are_compared_by_the_passes_of_their_model(tiny_pair, monkeypatch):
    curve = CostCurve(PassCurve({1: 1.0, 5: 3.0, 8: 7.0}))
    monkeypatch.setattr(
        properties.KeptCosts, "prepare", lambda costs, **_: setattr(costs, "curve", curve)
    )
    assert [make_tuner(tiny_pair)._time(role, {}) for role in ("draft", "main")] == [1.0, 4.0]


def make_tuner(pair):
    return Tuner(*pair, "CPU", 0.0, lambda _: None)


def test_a_pair_is_measured_with_the_settings_that_were_found(tiny_pair, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    best = {"INFERENCE_NUM_THREADS": "1"}
    monkeypatch.setattr(properties, "search", lambda *_: Found(best, "by far"))
    profile, _ = make_tuner(tiny_pair).run()
    assert profile.main_properties == profile.draft_properties == best
    assert profile.report[INVARIANT] == "yes"
    assert all(0.0 < ms < 1e4 for ms in profile.report[PRICES].values())
    assert 0.0 <= profile.report[CHANGED] < 0.5  # random models have near ties


def test_the_command_ends_with_its_time_and_a_short_report(tiny_pair, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    done = run("tune", *tiny_pair, "--seconds", 0.01)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) <= 25
    assert "main          defaults (no other settings were tried)" in done.stdout
    assert "of greedy choices differ from exact precision" in done.stdout
    assert "\nprofile       not written\n" in done.stdout
    assert "\nmain passes         1 tokens      2 tokens" in done.stdout
    assert "\nverdict       not clear" in done.stdout


@pytest.mark.parametrize(
    ("settings", "found", "profile"),
    [
        ({"A": "1"}, always(1.5), "written"),
        ({"A": "1"}, always(1.0), "written"),
        ({"A": "1"}, gain(1.5), "kept"),
        ({}, always(1.5), "removed"),
    ],
)
def test_a_profile_is_written_where_the_verdict_is_clear(
    tiny_pair, tmp_path, monkeypatch, settings, found, profile
):
    kept = dict.fromkeys(("main", "draft"), Found(settings, "by far"))
    written = Profile(
        "pair", settings, {}, {CHANGED: 0.0, INVARIANT: "yes", PRICES: {"1 tokens": 2.5}}
    )
    monkeypatch.setattr(Tuner, "run", lambda self: (written, kept))
    monkeypatch.setattr(drafters, "measure_gain", lambda *_: found)
    path = tmp_path / "profile.json"
    path.write_text("an earlier one")
    done = run("tune", *tiny_pair, "--output", path)
    assert done.returncode == 0, done.stderr
    said = {"written": path, "kept": "not written", "removed": "none"}[profile]
    assert f"\nprofile       {said}\n" in done.stdout
    assert path.exists() is (profile != "removed")
    assert (profile == "written") is (path.exists() and path.read_text() != "an earlier one")


def test_a_profile_that_cannot_be_written_is_refused_before_the_search(
    tiny_pair, tmp_path, monkeypatch
):
    monkeypatch.setattr(Tuner, "run", lambda self: pytest.fail("it searches"))
    (tmp_path / "file").touch()
    for output in (tmp_path / "file" / "profile.json", tmp_path):
        done = run("tune", *tiny_pair, "--output", output)
        assert (done.returncode, done.stdout) == (2, "")
        assert f"the profile '{output}' cannot be written" in done.stderr.replace("\n", " ")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert "give another --output" in run("tune", *tiny_pair).stderr.replace("\n", " ")


def test_threads_are_parts_of_the_cores_that_may_be_used(monkeypatch):
    monkeypatch.setattr(properties, "usable_cores", lambda: 8)
    assert choices_on("CPU")["INFERENCE_NUM_THREADS"] == ("4", "2")
    monkeypatch.setattr(properties, "usable_cores", lambda: 1)
    assert choices_on("CPU")["INFERENCE_NUM_THREADS"] == ()
