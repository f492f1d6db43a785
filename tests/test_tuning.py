"""The search on made-up costs; and the command on a real pair."""

import json
import subprocess
import sys

import pytest

from ov_specdec import SpeculativePipeline
from ov_specdec.cli import tune as tune_module
from ov_specdec.errors import DeviceError
from ov_specdec.loading.devices import PRECISION_PROPERTIES
from ov_specdec.loading.folder import ModelFolder
from ov_specdec.loading.profile import Profile
from ov_specdec.loading.runtime_config import RuntimeConfig
from ov_specdec.runner.cached_sequence import CachedSequence, alone
from ov_specdec.tuning import Budget, Gain, Tuner, Tuning, tuner
from ov_specdec.tuning import budget as budget_module
from ov_specdec.tuning import weigh as weigh_module
from ov_specdec.tuning.passes import PassCosts, measure_passes
from ov_specdec.tuning.search import Found, Refused, Trial, search
from ov_specdec.tuning.tuner import expected_speed, thread_choices
from ov_specdec.tuning.weigh import weigh
from tests.command_line import run
from tests.fakes import ScriptedModel, counting


def costs(one, each=0.0):
    return PassCosts({n: one + n * each for n in (1, 2, 4, 8, 16)}, prefill=0.0)


CHOICES = {"A": ("1", "2"), "B": ("1",)}


FASTEST = Trial({"A": "1"}, costs(1.0))


def weighed(tiny_pair, monkeypatch, differences, seconds):
    """The choice and its reason. differences: by precision hint; seconds: of a pass in `exact`."""

    def check(folder, config):
        return differences.get(config.properties.get("INFERENCE_PRECISION_HINT"), "")

    monkeypatch.setattr(weigh_module, "check", check)
    folder = ModelFolder.read(tiny_pair[0])
    return weigh(
        folder, RuntimeConfig(), FASTEST, lambda _: costs(seconds), lambda c: 1 / c.seconds[1]
    )


def test_the_fastest_settings_are_kept_where_they_are_invariant(tiny_pair, monkeypatch):
    assert weighed(tiny_pair, monkeypatch, {}, 1.0) == (FASTEST, "yes")


def test_invariant_settings_are_taken_where_they_are_as_fast(tiny_pair, monkeypatch):
    trial, why = weighed(tiny_pair, monkeypatch, {None: "a pass"}, 1.01)
    assert trial.properties == PRECISION_PROPERTIES["f32"]
    assert "INFERENCE_PRECISION_HINT=f32 is, with 0.99 times the speed" in why


def test_slower_ones_are_named(tiny_pair, monkeypatch):
    trial, why = weighed(tiny_pair, monkeypatch, {None: "a pass"}, 2.0)
    assert trial == FASTEST
    assert why.startswith("no: a pass; INFERENCE_PRECISION_HINT=f32 is, with 0.50 times")


def test_where_nothing_is_invariant_it_says_what_differs(tiny_pair, monkeypatch):
    nowhere = {None: "a pass", "f32": "a prompt"}
    assert weighed(tiny_pair, monkeypatch, nowhere, 1.0) == (FASTEST, "no: a pass")


def find(seconds, *, may_go_on=lambda: True):
    """Search with the cost of a pass given by settings; a missing one is refused."""
    noted = []

    def measure(properties):
        key = "".join(f"{name}{value}" for name, value in properties.items())
        if key not in seconds:
            raise DeviceError("not here")
        return costs(seconds[key])

    found = search(measure, lambda c: c.seconds[1], CHOICES, may_go_on, noted.append)
    return found, noted


def test_the_best_values_are_combined():
    found, noted = find({"": 9.0, "A1": 8.0, "A2": 7.0, "A2B1": 6.0})
    assert found.best.properties == {"A": "2", "B": "1"}
    assert found.default.properties == {}
    assert [trial.properties for trial in noted] == [
        {},
        {"A": "1"},
        {"A": "2"},
        {"A": "2", "B": "1"},
    ]


def test_what_is_refused_is_noted_and_passed_over():
    found, noted = find({"": 9.0, "A2": 7.0, "A2B1": 8.0})
    assert found.best.properties == {"A": "2"}
    assert Refused({"A": "1"}, "not here") in noted


def test_a_gain_within_the_noise_is_none():
    assert find({"": 9.0, "A1": 8.9, "A2": 8.9, "B1": 8.9})[0].best.properties == {}


def test_what_wins_by_chance_loses_when_it_is_measured_again():
    times = iter([9.0, 5.0, 9.0, 9.0, 9.0, 9.0])  # defaults, A1, A2, A1 B1; defaults, A1
    found = search(
        lambda properties: costs(next(times)),
        lambda c: c.seconds[1],
        CHOICES,
        lambda: True,
        lambda trial: None,
    )
    assert found.best.properties == {}


def test_the_search_ends_with_the_time():
    found, noted = find({"": 9.0, "A1": 1.0}, may_go_on=iter([True, False]).__next__)
    assert found.best.properties == {"A": "1"}
    assert len(noted) == 2


def test_a_device_that_refuses_its_defaults_is_an_error():
    with pytest.raises(DeviceError, match="not here"):
        find({})


def test_the_speed_to_expect_is_that_of_the_best_length():
    # Every draft token is accepted: the longest draft that was measured is best.
    assert expected_speed(costs(1.0), 0.0, 1.0) == pytest.approx(16.0)
    assert expected_speed(costs(1.0), 0.1, 0.0) == 1.0
    # Lengths 1, 2 and 3 by hand: 1.6 / 1.2, 1.96 / 1.4 and 2.176 / 1.6 against 1 of plain decoding.
    assert expected_speed(costs(1.0), 0.2, 0.6) == pytest.approx(1.96 / 1.4)


def test_the_tokens_that_change_are_those_of_the_chosen_settings(tiny_pair, monkeypatch):
    best, compared = Trial({"A": "1"}, costs(1.0)), []

    def compare(self, settings, texts):
        compared.append(settings)
        return 0.5

    monkeypatch.setattr(tuner, "search", lambda *_: Found(Trial({}, costs(1.0)), best))
    monkeypatch.setattr(tuner, "weigh", lambda *_: (best, "yes"))
    monkeypatch.setattr(Tuner, "_write_exactly", lambda self: [])
    monkeypatch.setattr(Tuner, "_measure_acceptance", lambda self: 0.5)
    monkeypatch.setattr(Tuner, "_compare", compare)
    tuning = Tuner(*tiny_pair, "CPU", budget=Budget(1.0), note=print).run()
    assert tuning.changed == 0.5
    assert compared == [{"A": "1"}]  # once: it takes long
    assert tuning.profile.main_properties == {"A": "1"}


def test_loading_is_counted_apart(monkeypatch):
    clock = iter([0.0, 1.0, 6.0, 8.0])
    monkeypatch.setattr(budget_module, "perf_counter", lambda: next(clock))
    budget = Budget(10.0)
    with budget.load():
        pass
    assert budget.loading == 5.0
    assert budget.left == 7.0


@pytest.mark.parametrize(("ratio", "is_clear"), [(1.5, True), (1.0, True), (None, False)])
def test_a_profile_is_written_where_the_verdict_is_clear(
    tiny_pair, tmp_path, monkeypatch, ratio, is_clear
):
    def measure(main, candidate, *_, **__):
        ratios = (1.5,) if ratio is None else 4 * (ratio,)
        return Gain(candidate, 15.0, 10.0, ratios, 1.5)

    found = Tuning(Profile("pair", {"A": "1"}, {}, {}), 0.0, {"main": "", "draft": ""}, "yes")
    monkeypatch.setattr(Tuner, "run", lambda self: found)
    monkeypatch.setattr(tune_module, "measure_gain", measure)
    path = tmp_path / "profile.json"
    done = run("tune", *tiny_pair, "--output", path)
    assert done.returncode == 0, done.stderr
    assert path.exists() is is_clear
    assert done.stdout.count("verdict       ") == 1
    assert ("not clear" in done.stdout) is not is_clear


def test_what_there_is_no_time_for_is_not_measured(tiny_pair, monkeypatch):
    measured = []

    def measure(main, candidate, *_, budget, **__):
        measured.append(candidate.drafter)
        budget.seconds = 0.0  # that took all of it
        return Gain(candidate, 15.0, 10.0, (1.5,), 1.5)

    monkeypatch.setattr(tune_module, "measure_gain", measure)
    assert run("tune", tiny_pair[0], "--other-draft", tiny_pair[1]).returncode == 0
    assert measured == ["model"]


def test_a_main_model_is_timed_in_the_form_that_it_will_run_in(tiny_pair, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # no verdict is known
    timed = Tuner(*tiny_pair, "CPU", budget=Budget(1.0), note=print)
    with SpeculativePipeline(*tiny_pair) as pipeline:
        models = {"main": pipeline.main, "draft": pipeline.draft}
        for role, model in models.items():
            assert timed._config(role, {}).batch_invariant == model.config.batch_invariant
        assert pipeline.main.config.batch_invariant


def test_measuring_gives_the_memory_back():
    model = ScriptedModel(counting, max_length=40)
    measured = measure_passes(model, 3)
    assert max(model.passes) == 24
    assert model.pool.num_used == 0
    assert alone(CachedSequence(model).advance([3] * 24)).num_cached == 0
    assert list(measured.seconds) == [1, 2, 4, 8, 16]
    assert all(seconds > 0 for seconds in measured.seconds.values())


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
    monkeypatch.setattr(tuner, "usable_cores", lambda: 8)
    assert thread_choices() == {"INFERENCE_NUM_THREADS": ("4", "2")}
    monkeypatch.setattr(tuner, "usable_cores", lambda: 1)
    assert thread_choices() == {"INFERENCE_NUM_THREADS": ()}


@pytest.mark.deep
def test_tune_writes_a_profile_that_later_runs_take_up(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    command = [sys.executable, "-m", "ov_specdec", "tune", "--seconds", "30"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "| main | defaults |" in done.stdout
    assert "of greedy choices differ from exact precision" in done.stdout
    pipeline = SpeculativePipeline()
    assert pipeline.profile is not None
    assert f"profile       {pipeline.profile}" in done.stdout
    report = json.loads(pipeline.profile.read_text())["report"]
    assert 0.0 <= report["other_token_than_exact"] <= 1.0
