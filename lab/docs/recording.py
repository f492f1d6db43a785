"""The picture of a terminal in the docs: `python -m lab.docs.recording`.

Runs the commands and writes docs/images/terminal.svg: what they print. Nothing is typed or
shortened by hand.
"""

import io
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
from rich.console import Console
from rich.text import Text

FILE = Path(__file__).parents[2] / "docs" / "images" / "terminal.svg"
COMMANDS = (("ov-specdec", "compare", "class Matrix:", "--repetition-penalty", "1.2"),)
WIDTH = 100


def run(command: tuple[str, ...]) -> list[str]:
    """The lines that a command prints."""
    here = Path(sys.executable).parent / command[0]
    done = subprocess.run([here, *command[1:]], stdout=subprocess.PIPE, text=True, check=True)
    return [line for line in done.stdout.splitlines() if line.strip()]


def draw(lines: list[str]) -> str:
    """The terminal as an SVG file."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    for line in lines:
        console.print(Text.from_ansi(line))
    svg = console.export_svg(title="ov-specdec", unique_id="terminal")
    # The fonts that rich names are fetched from elsewhere.
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)


@click.command()
@click.option("--output", type=click.Path(path_type=Path), default=FILE, show_default=True)
def main(output: Path) -> None:
    """Record the commands of README."""
    lines = list[str]()
    for command in COMMANDS:
        lines += [f"\x1b[1m$ {shlex.join(command)}\x1b[0m", *run(command)]
    output.write_text(draw(lines), encoding="utf-8")
    click.echo(output)


if __name__ == "__main__":
    main()
