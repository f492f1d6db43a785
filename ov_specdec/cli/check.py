"""`ov-specdec check`: whether two models may decode together."""

import sys

import click

from ov_specdec.cli.terminal import console, with_errors
from ov_specdec.errors import TokenizerMismatchError
from ov_specdec.loading.locate import locate
from ov_specdec.loading.source import check_pair, open_source, pair_tokenizers

INCOMPATIBLE = 1


@click.command()
@click.argument("main")
@click.argument("draft")
@with_errors
def check(main: str, draft: str) -> None:
    """Compare the tokenizers of MAIN and DRAFT; exit code 0 if they are the same, 1 if not.

    Where they are not, it says which pairings are possible (--pairing of other commands).
    """
    with console.status("Reading models"):
        sources = open_source(locate(main)), open_source(locate(draft))
        report = check_pair(*sources)
    for line in report.lines():
        click.echo(line)
    click.echo("compatible" if report.compatible else "not compatible")
    if not report.compatible:
        try:
            lines = list(pair_tokenizers(*sources).lines())
        except TokenizerMismatchError as error:
            lines = [f"pairings: none, for {error}"]
        for line in lines:
            click.echo(line)
        sys.exit(INCOMPATIBLE)
