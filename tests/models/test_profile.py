"""Profiles: what they are found by, and when they are taken up."""

import json
import shutil
from dataclasses import replace

import pytest

from ov_specdec import SpeculativePipeline
from ov_specdec.errors import OptionError
from ov_specdec.files import record_file
from ov_specdec.models.folder import ModelFolder
from ov_specdec.models.profile import VERSION, Profile, find_profile, pair_fingerprint, read_profile
from ov_specdec.results.stats import BatchInvariance

MAIN_PROPERTIES = {"KV_CACHE_PRECISION": "f32"}
DRAFT_PROPERTIES = {"INFERENCE_NUM_THREADS": "1"}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def folders(tiny_pair):
    return tuple(ModelFolder.read(path) for path in tiny_pair)


@pytest.fixture
def profile(folders):
    pair = pair_fingerprint(*folders, "CPU", "auto")
    return Profile(pair, MAIN_PROPERTIES, DRAFT_PROPERTIES, {"ratio": 1.5})


@pytest.fixture
def kept(profile):
    """The file in which the profile is found."""
    profile.write(record_file(profile.pair))
    return record_file(profile.pair)


def test_another_machine_or_model_has_another_fingerprint(
    folders, tiny_pair, tmp_path, monkeypatch
):
    main, draft = folders
    here = pair_fingerprint(main, draft, "CPU", "auto")
    assert pair_fingerprint(draft, main, "CPU", "auto") != here
    assert pair_fingerprint(main, draft, "CPU", "stateful") != here
    moved = ModelFolder.read(shutil.copytree(tiny_pair[0], tmp_path / "moved"))
    assert pair_fingerprint(moved, draft, "CPU", "auto") == here
    monkeypatch.setattr("ov_specdec.models.compile.describe_machine", lambda device: "another")
    assert pair_fingerprint(main, draft, "CPU", "auto") != here


def test_auto_finds_what_was_written_for_the_pair(folders, profile, request):
    assert find_profile("auto", *folders, "CPU", "auto") is None
    kept = request.getfixturevalue("kept")
    assert find_profile("auto", *folders, "CPU", "auto") == (kept, profile)
    assert find_profile("none", *folders, "CPU", "auto") is None


def test_a_profile_of_another_pair_is_refused(folders, profile, tmp_path):
    path = tmp_path / "other.json"
    Profile("another", {}, {}, {}).write(path)
    with pytest.raises(OptionError, match="another pair of models"):
        find_profile(path, *folders, "CPU", "auto")


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (lambda text: "[]", ""),
        (lambda text: '{"version": 1}', ""),
        (lambda text: "[" * 100_000, ""),
        (
            lambda text: text.replace(f'"version": {VERSION}', f'"version": {VERSION - 1}'),
            "it has another format.*: ",
        ),
    ],
)
def test_a_broken_or_changed_profile_is_refused(profile, tmp_path, spoil, complaint):
    path = tmp_path / "profile.json"
    profile.write(path)
    path.write_text(spoil(path.read_text()))
    with pytest.raises(OptionError, match=f"{complaint}run ov-specdec tune again"):
        read_profile(path)
    with pytest.raises(OptionError, match="cannot be read"):
        read_profile(tmp_path / "missing.json")


@pytest.mark.parametrize("content", ["", json.dumps({"version": 0})])
def test_a_broken_profile_that_nobody_asked_for_is_passed_over(tiny_pair, kept, content):
    kept.write_text(content)
    with pytest.warns(RuntimeWarning, match="run ov-specdec tune again; going on without it"):
        pipeline = SpeculativePipeline(*tiny_pair)
    assert pipeline.profile is None
    assert pipeline.generate("def", max_new_tokens=4).token_ids


def test_a_profile_is_taken_up_unless_something_else_is_asked_for(tiny_pair, kept):
    assert SpeculativePipeline(*tiny_pair).profile == kept
    assert SpeculativePipeline(*tiny_pair, profile="none").profile is None
    assert SpeculativePipeline(*tiny_pair, profile=kept).profile == kept
    assert SpeculativePipeline(*tiny_pair, precision="exact").profile is None
    assert SpeculativePipeline(*tiny_pair, properties={"PERF_COUNT": "NO"}).profile is None
    assert SpeculativePipeline(*tiny_pair, properties={}).profile == kept  # nothing is asked for
    with pytest.raises(OptionError, match="has no effect where precision"):
        SpeculativePipeline(*tiny_pair, precision="exact", profile=kept)


@pytest.mark.usefixtures("kept")
def test_a_profile_that_gives_way_to_an_invariant_precision_is_not_in_use(tiny_pair, monkeypatch):
    off = BatchInvariance(False, "on purpose")

    def configure(wanted, folder, config, others):
        assert dict(config.properties) == MAIN_PROPERTIES
        return replace(config, precision="exact", properties=None), off

    monkeypatch.setattr("ov_specdec.generation.pipeline.configure", configure)
    pipeline = SpeculativePipeline(*tiny_pair)
    assert (pipeline.profile, pipeline.main.config.precision) == (None, "exact")
