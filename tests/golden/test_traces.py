"""The decoding core does, pass by pass, what `tests/traces/golden` has kept of it."""

import copy

import pytest

from tests.traces import golden
from tests.traces.recorder import play
from tests.traces.runs import GROUPS

RUNS = [(group, run) for group, runs in GROUPS.items() for run in runs]


@pytest.mark.parametrize(("group", "run"), RUNS, ids=[f"{g}: {run.name}" for g, run in RUNS])
def test_a_run_is_what_it_was(group, run):
    found = golden.difference(golden.read(group).get(run.name, []), play(run))
    assert not found, f"{found}\n\n`python -m tests.traces --write` keeps it as it is now"


@pytest.mark.parametrize("group", GROUPS)
def test_nothing_is_kept_of_runs_that_are_gone(group):
    assert list(golden.read(group)) == [run.name for run in GROUPS[group]]


def test_the_first_step_that_differs_is_shown():
    [group, run], *_ = RUNS
    kept = golden.read(group)[run.name]
    now = copy.deepcopy(kept)
    now[2]["passes"][0] += "x"
    now[3]["got"] = {}
    assert golden.difference(kept, kept) == ""
    found = golden.difference(kept, now)
    assert found.startswith(f"record 2 of {len(kept)}, step:\n")
    assert f'-   "{kept[2]["passes"][0]}"' in found
    assert f'+   "{now[2]["passes"][0]}"' in found
    assert golden.difference(kept, now[:2]).endswith(f"{len(kept)} records were kept, now 2")
