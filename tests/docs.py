"""The command-line reference, from the commands' own help; `python -m tests.docs` writes it."""

from pathlib import Path

import click
from click.testing import CliRunner

from ov_specdec.cli import app

CLI_REFERENCE = Path(__file__).parent.parent / "docs" / "cli.md"

INTRODUCTION = """# Command line

Results go to stdout, progress and summaries to stderr. Exit code 0 is success, 1 the negative
answer of `check`, 2 an error: its message, one line, names the value and the remedy. An interrupted
run is one of these. `--debug` adds the traceback.

This page is made from the commands' own help by `python -m tests.docs`.
"""


def cli_reference() -> str:
    """The page: an introduction, and the help of each command."""
    parts = [INTRODUCTION]
    for name in sorted(app.commands):
        result = CliRunner().invoke(
            app, [name, "--help"], prog_name="ov-specdec", terminal_width=100
        )
        if result.exit_code != 0:
            raise click.ClickException(f"{name} --help failed: {result.output}")
        parts.append(f"## {name}\n\n```\n{result.output.strip()}\n```\n")
    return "\n".join(parts)


if __name__ == "__main__":
    CLI_REFERENCE.write_text(cli_reference(), encoding="utf-8")
