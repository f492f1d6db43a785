"""The recording of a terminal in the docs: `python -m tests.docs.recording`.

Runs the commands in a terminal of their own, and writes docs/images/terminal.svg: what they print,
line by line as it came. Nothing is typed or shortened by hand, but that waits are cut to a pause.
"""

import io
import os
import pty
import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

import click
from rich.console import Console
from rich.text import Text

FILE = Path(__file__).parents[2] / "docs" / "images" / "terminal.svg"
COMMANDS = (("ov-specdec", "compare", "def create_table(rows, columns=None):"),)
NAME, WIDTH = "terminal", 100
PAUSE = 1.5
"""Most seconds between two lines, and those in which a command can be read."""

CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-HJKSTfhl]|\x1b\[[0-9]*n|\x07")
"""What moves the cursor or clears; colours stay."""


UP = "\x1b[1A"
"""Back to the line above, as a progress bar goes that ends and leaves nothing."""


@dataclass(frozen=True)
class Line:
    """A line of the terminal, and the second of the recording at which it is there."""

    text: str
    seconds: float


def run(command: tuple[str, ...]) -> list[tuple[float, bytes]]:
    """What a command writes to a terminal, and when."""
    pieces: list[tuple[float, bytes]] = []

    def read(terminal: int) -> bytes:
        piece = os.read(terminal, 4096)
        pieces.append((monotonic(), piece))
        return piece

    os.environ |= {"COLUMNS": str(WIDTH), "LINES": "50", "TERM": "xterm-256color"}
    here = Path(sys.executable).parent / command[0]
    if status := pty.spawn([str(here), *command[1:]], read):
        raise click.ClickException(f"{command[0]} ended with status {status}")
    return pieces


def lines_of(pieces: list[tuple[float, bytes]], begin: float) -> list[Line]:
    """Lines as they stand in the end, each with the second of its last piece after `begin`."""
    lines, text = list[Line](), ""
    first = pieces[0][0] if pieces else 0.0
    for seconds, piece in pieces:
        *ended, text = (text + piece.decode(errors="replace")).split("\n")
        for line in ended:
            erased = line.count(UP)
            del lines[len(lines) - erased :]
            lines.append(Line(line, begin + seconds - first))
    lines += [Line(text, begin + pieces[-1][0] - first)] if text.strip() else []
    # What a carriage return goes back over is gone, as a progress bar is.
    shown = [Line(CONTROL.sub("", clean(line.text)), line.seconds) for line in lines]
    return [line for line in shown if line.text.strip()]


def clean(line: str) -> str:
    """A line without what was written over."""
    return line.rstrip("\r").rpartition("\r")[2]


def record() -> list[Line]:
    """All commands with their output, one after the other."""
    lines, now = list[Line](), 0.0
    for command in COMMANDS:
        lines.append(Line(f"\x1b[1m$ {shlex.join(command)}\x1b[0m", now))
        output = lines_of(run(command), now + PAUSE)
        lines += output
        now = output[-1].seconds + PAUSE
    return lines


def without_waits(seconds: list[float]) -> list[float]:
    """The same times with no more than a pause between two of them."""
    found = list[float]()
    for before, now in zip([0.0, *seconds], seconds, strict=False):
        found.append((found[-1] if found else 0.0) + min(now - before, PAUSE))
    return found


def animated(svg: str, seconds: list[float]) -> str:
    """The picture, in which each line appears when it came; still for those who want no motion."""
    if f'clip-path="url(#{NAME}-line-0)"' not in svg:
        raise click.ClickException("rich draws terminals otherwise now: see `animated`")
    rules = "\n".join(
        f'[clip-path="url(#{NAME}-line-{i})"] {{ animation: come 0.1s {at:.2f}s both }}'
        for i, at in enumerate(without_waits(seconds))
    )
    style = (
        "@keyframes come { from { opacity: 0 } to { opacity: 1 } }\n"
        f"@media (prefers-reduced-motion: no-preference) {{\n{rules}\n}}\n</style>"
    )
    return svg.replace("</style>", style, 1)


def draw(lines: list[Line]) -> str:
    """The recording as an SVG file."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    rows = [
        (row, line.seconds)
        for line in lines
        for row in Text.from_ansi(line.text).wrap(console, WIDTH)
    ]
    for row, _ in rows:
        console.print(row)
    svg = console.export_svg(title="ov-specdec", unique_id=NAME)
    # The fonts that rich names are fetched from elsewhere.
    return animated(
        re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL), [at for _, at in rows]
    )


@click.command()
@click.option("--output", type=click.Path(path_type=Path), default=FILE, show_default=True)
def main(output: Path) -> None:
    """Record the commands of README."""
    output.write_text(draw(record()), encoding="utf-8")
    click.echo(output)


if __name__ == "__main__":
    main()
