"""What the methods of a benchmark are compiled with: options, or the profile of the pair."""

import pytest

from ov_specdec.errors import OptionError
from ov_specdec.loading.devices import describe_machine
from ov_specdec.loading.folder import ModelFolder
from ov_specdec.loading.locate import embedded_folder
from ov_specdec.loading.profile import Profile, default_path, fingerprint
from tests.benchmarks.peers.options import make_request
from tests.benchmarks.peers.own import own
from tests.benchmarks.peers.setup import Setup

MAIN, DRAFT = {"KV_CACHE_PRECISION": "f32"}, {"INFERENCE_NUM_THREADS": "1"}


@pytest.fixture
def profile(tiny_pair, tmp_path, monkeypatch):
    """The file of a profile for the tiny pair, where `--profile auto` finds it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folders = map(ModelFolder.read, tiny_pair)
    written = Profile(fingerprint(*folders, describe_machine("CPU"), "auto"), MAIN, DRAFT, {})
    written.write(default_path(written.pair))
    return str(default_path(written.pair))


def setup_of(tiny_pair, **chosen):
    """The setup that a command line asks for."""
    options = dict.fromkeys(
        ("rounds", "max_new_tokens", "methods", "prompt_set", "prompt_file", "context")
    )
    options["output"] = None
    options |= {"quick": True, "baseline": "plain", "timeout": 60}
    options |= {"concurrency": None, "arrivals": "together", "mix": False}
    options |= {"max_prefill_tokens_per_step": None, "main": str(tiny_pair[0])}
    options |= {"draft": str(tiny_pair[1]), "device": "CPU", "pairing": None}
    options |= {
        "precision": "default",
        "static_shapes": "auto",
        "properties": (),
        "profile": "auto",
        **chosen,
    }
    return make_request(options).setup


def test_the_profile_of_the_pair_is_taken_up(tiny_pair, profile):
    setup = setup_of(tiny_pair)
    assert (setup.profile, setup.properties, setup.draft_properties) == (profile, MAIN, DRAFT)
    assert setup.all_properties() == MAIN
    assert setup.all_properties("draft") == DRAFT
    assert own("model")(setup, 2)._pipeline.profile is not None
    assert setup_of(tiny_pair, profile=profile).profile == profile


def test_what_is_given_wins_over_a_profile_that_was_not_asked_for(tiny_pair, profile):
    assert setup_of(tiny_pair, profile="none").profile is None
    assert setup_of(tiny_pair, precision="f32").profile is None
    assert setup_of(tiny_pair, properties=("A=1",)).all_properties("draft") == {"A": "1"}
    with pytest.raises(OptionError, match=r"--profile .* has no effect with --precision"):
        setup_of(tiny_pair, precision="f32", profile=profile)


def test_methods_without_the_draft_run_with_the_mains_properties(tiny_pair, profile):
    arguments = setup_of(tiny_pair).pipeline_arguments("auto", drafts=False)
    assert (arguments["properties"], arguments["profile"]) == (MAIN, "none")
    stateful = setup_of(tiny_pair).pipeline_arguments("stateful", drafts=True)
    assert stateful["draft_properties"] == DRAFT


def test_defaults_are_openvinos_whatever_the_profile_says():
    setup = Setup("m", "d", properties=MAIN, draft_properties=DRAFT, profile="p").with_defaults()
    assert setup.all_properties() == setup.all_properties("draft") == {}
    assert setup.profile is None


def test_a_load_sets_the_batch_of_this_projects_methods(tiny_pair):
    setup = setup_of(tiny_pair, concurrency="2,24,4", max_prefill_tokens_per_step=8)
    arguments = setup.pipeline_arguments("auto", drafts=True)
    assert (arguments["max_batch_size"], arguments["max_prefill_tokens_per_step"]) == (24, 8)
    assert setup_of(tiny_pair).pipeline_arguments("auto", drafts=True)["max_batch_size"] == 1


def test_a_pairing_is_for_the_methods_that_have_one(tiny_pair):
    other = str(embedded_folder("draft"))
    setup = setup_of(tiny_pair, draft=other, pairing="auto")
    assert setup.pairing in ("intersection", "retokenize")
    assert own("model")(setup, 2)._pipeline.pairing == setup.pairing
    assert own("suffix")(setup, 2)._pipeline.pairing is None
    assert setup_of(tiny_pair, pairing="auto").pairing is None, "the tokenizers are the same"
