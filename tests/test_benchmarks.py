"""The laboratory's commands, which have no tests of what they measure: that they can be called."""

import subprocess
import sys

import click
import pytest

from tests.benchmarks.__main__ import COMMANDS, benchmarks, main
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
