"""Walk it: `python -m lab.walk`. A table of steps; the exit code is 1 if one of them failed."""

import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic

import click

from lab.walk import pages, readme
from lab.walk.environment import ROOT, Environment


class Table:
    """The steps, each printed when it has ended. num_failed: those so far."""

    num_failed = 0

    def step(self, part: str, name: str, take: Callable[[], str]) -> None:
        """Take a step. take: returns what went wrong, or nothing."""
        began = monotonic()
        try:
            problem = take()
        except Exception as error:  # such as what a browser has waited for in vain
            problem = f"{type(error).__name__}: {error}"
        verdict, seconds = "FAILED" if problem else "ok", f"{monotonic() - began:.1f} s"
        click.echo(f"{part:8} {verdict:7} {seconds:>8}  {' '.join(name.split())[:90]}")
        if problem:
            self.num_failed += 1
            click.echo(f"{'':27}{' '.join(problem.split())[:400]}")


@click.command()
@click.option("--pictures", type=Path, default=ROOT / "build" / "walk", help="Folder for them.")
def main(pictures: Path) -> None:
    """Walk through the first hour in a clean environment. Needs chromium and port 8000."""
    table = Table()
    with TemporaryDirectory() as folder, ExitStack() as servers:
        environment = Environment(Path(folder))
        (environment.checkout / "requests.jsonl").write_text(readme.REQUESTS, encoding="utf-8")
        for line in readme.lines_of(environment.checkout / "README.md"):
            if why := readme.why_elsewhere(line):
                click.echo(f"README   {why}: {' '.join(line.split())[:80]}")
            else:
                table.step("README", line, partial(readme.follow, line, environment, servers))
        for name in pages.LOOKS:
            if name not in environment.addresses:  # the README names it in a sentence
                line = f"pip install '.[{name}]' && ov-specdec {name}"
                table.step("page", line, partial(readme.follow, line, environment, servers))
        for name, visit in pages.visits(environment.addresses, pictures):
            table.step("page", name, visit)
    click.echo(f"{table.num_failed} steps failed; pictures are in {pictures}")
    sys.exit(1 if table.num_failed else 0)


if __name__ == "__main__":
    main()
