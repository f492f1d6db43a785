"""The picture of a terminal in the docs: `python -m tests.docs.recording`.

Runs the commands in a terminal of their own, and writes docs/images/terminal.svg: what stands there
in the end. Nothing is typed or shortened by hand.
"""

import io
import os
import pty
import re
import shlex
import sys
from pathlib import Path

import click
from rich.console import Console
from rich.text import Text

FILE = Path(__file__).parents[2] / "docs" / "images" / "terminal.svg"
COMMANDS = (("ov-specdec", "compare", "def create_table(rows, columns=None):"),)
WIDTH = 100

CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-HJKSTfhl]|\x1b\[[0-9]*n|\x07")
"""What moves the cursor or clears; colours stay."""

UP = "\x1b[1A"
"""Back to the line above, as a progress bar goes that ends and leaves nothing."""


def run(command: tuple[str, ...]) -> bytes:
    """What a command writes to a terminal."""
    pieces: list[bytes] = []

    def read(terminal: int) -> bytes:
        pieces.append(os.read(terminal, 4096))
        return pieces[-1]

    os.environ |= {"COLUMNS": str(WIDTH), "LINES": "50", "TERM": "xterm-256color"}
    here = Path(sys.executable).parent / command[0]
    if status := pty.spawn([str(here), *command[1:]], read):
        raise click.ClickException(f"{command[0]} ended with status {status}")
    return b"".join(pieces)


def lines_of(written: bytes) -> list[str]:
    """Lines as they stand in the end."""
    lines = list[str]()
    for line in written.decode(errors="replace").split("\n"):
        del lines[len(lines) - line.count(UP) :]
        # What a carriage return goes back over is gone, as a progress bar is.
        lines.append(CONTROL.sub("", line.rstrip("\r").rpartition("\r")[2]))
    return [line for line in lines if line.strip()]


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
        lines += [f"\x1b[1m$ {shlex.join(command)}\x1b[0m", *lines_of(run(command))]
    output.write_text(draw(lines), encoding="utf-8")
    click.echo(output)


if __name__ == "__main__":
    main()
