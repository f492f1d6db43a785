"""`ov-specdec check`: whether two models may decode together."""

import sys

import click

from ov_specdec.cli.terminal import console, with_errors
from ov_specdec.loading.locate import locate
from ov_specdec.loading.source import check_pair, open_source

INCOMPATIBLE = 1


@click.command()
@click.argument("main")
@click.argument("draft")
@with_errors
def check(main: str, draft: str) -> None:
    """Compare the tokenizers of MAIN and DRAFT; exit code 0 if they are the same, 1 if not."""
    with console.status("Reading models"):
        report = check_pair(open_source(locate(main)), open_source(locate(draft)))
    for line in report.lines():
        click.echo(line)
    click.echo("compatible" if report.compatible else "not compatible")
    if not report.compatible:
        sys.exit(INCOMPATIBLE)
