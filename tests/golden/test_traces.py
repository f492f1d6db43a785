"""The decoding core does, pass by pass, what `tests/traces/golden` has kept of it."""

import pytest

from tests.traces import golden
from tests.traces.recorder import play
from tests.traces.runs import GROUPS

RUNS = [(group, run) for group, module in GROUPS.items() for run in module.RUNS]


@pytest.mark.parametrize(("group", "run"), RUNS, ids=[f"{g}: {run.name}" for g, run in RUNS])
def test_a_run_is_what_it_was(group, run):
    found = golden.difference(golden.read(group).get(run.name, []), play(run))
    assert not found, f"{found}\n\n`python -m tests.traces --write` keeps it as it is now"


@pytest.mark.parametrize("group", GROUPS)
def test_nothing_is_kept_of_runs_that_are_gone(group):
    assert list(golden.read(group)) == [run.name for run in GROUPS[group].RUNS]
