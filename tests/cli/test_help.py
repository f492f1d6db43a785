"""The help of each command: short, by group, with examples, and all options on request."""

import re
import shlex

import click
import pytest
from click.testing import CliRunner

from ov_specdec.cli.app import COMMANDS, app
from ov_specdec.cli.help import EXAMPLES, MOST_USED


def command(name):
    return app.get_command(click.Context(app), name)


def names_of(options):
    return {flag for each in options for flag in (*each.opts, *each.secondary_opts)}


@pytest.mark.parametrize("name", COMMANDS)
def test_help_is_short_and_help_all_has_every_option(name):
    short, full = (
        CliRunner().invoke(app, [name, flag], env={"COLUMNS": "80"}).output
        for flag in ("--help", "--help-all")
    )
    assert len(short.splitlines()) <= 60
    examples = re.findall(rf"^  ov-specdec {name}\b", short, re.MULTILINE)
    assert len(examples) == (2 if name == "devices" else 3)
    options = [each for each in command(name).params if isinstance(each, click.Option)]
    listed = " ".join(re.findall(r"^  (-.*?)(?:  |$)", full, re.MULTILINE))
    assert names_of(options) <= set(re.split(r"[ ,/]+", listed))
    required = [each for each in options if each.required or each.name == "max_new_tokens"]
    assert all(f"  {flag} " in short for flag in names_of(required))


@pytest.mark.parametrize("line", EXAMPLES.splitlines())
def test_examples_have_the_options_of_their_commands(line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for file in ("report.txt", "keys.txt"):  # that are read with the options
        (tmp_path / file).touch()
    name, *words = shlex.split(line)
    assert command(name).make_context(name, words).params


def test_the_most_used_options_exist():
    known = {each.name for name in COMMANDS for each in command(name).params}
    assert set(MOST_USED) - {""} <= known
