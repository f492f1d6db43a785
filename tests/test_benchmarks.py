"""The laboratory's command line, and what its commands share."""

import json
import subprocess
import sys

import click
import pytest

from tests.benchmarks.__main__ import COMMANDS, benchmarks, main
from tests.benchmarks.figures import interval, quartiles
from tests.benchmarks.options import several
from tests.benchmarks.texts import read_tasks
from tests.command_line import run


@pytest.mark.parametrize("name", COMMANDS)
def test_the_table_of_commands_says_what_the_commands_say(name):
    command = benchmarks.get_command(click.Context(benchmarks), name)
    assert command.get_short_help_str(limit=200) == COMMANDS[name]
    assert command.name == name


def test_help_lists_the_commands():
    done = run("--help", main=main)
    assert done.returncode == 0
    assert all(f"  {name} " in done.stdout for name in COMMANDS)


def test_an_unknown_command_is_one_line_and_exit_code_two():
    done = run("nothing", main=main)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: No such command 'nothing'")
    assert len(done.stderr.splitlines()) == 1


def test_it_runs_as_a_module():
    command = [sys.executable, "-m", "tests.benchmarks", "expand", "--help"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Usage: python -m tests.benchmarks expand [OPTIONS] [MODEL]\n")


@pytest.mark.parametrize(
    ("typed", "values"), [((), (2, 4)), (("--lengths", "3, 5"), (3, 5)), (("--lengths", ""), ())]
)
def test_several_values_are_separated_by_commas(typed, values):
    assert lengths(list(typed), standalone_mode=False) == values


@pytest.mark.parametrize("typed", ["3,x", "3,7"])
def test_values_that_are_none_of_those_asked_for_are_refused(typed):
    with pytest.raises(click.BadParameter):
        lengths(["--lengths", typed], standalone_mode=False)


@click.command()
@several("--lengths", int, (2, 4), says="Of drafts.", among=range(2, 6))
def lengths(lengths):
    return lengths


def test_the_tasks_of_a_file_come_in_turns(tmp_path):
    file = tmp_path / "tasks.jsonl"
    given = [("qa", "1"), ("qa", "2"), ("qa", "3"), ("chat", "4")]
    lines = [json.dumps({"task": task, "prompt": prompt}) for task, prompt in given]
    file.write_text("\n".join(lines) + "\n")
    assert read_tasks(str(file)) == [("qa", "1"), ("chat", "4"), ("qa", "2"), ("qa", "3")]


def test_figures_are_shown_with_their_spread():
    assert quartiles([1.0, 2.0, 3.0]) == "2.00 (1.00 to 3.00)"
    assert interval([1.5] * 4) == "1.500 (1.500 to 1.500), 4 pairs"
