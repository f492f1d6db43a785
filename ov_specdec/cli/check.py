"""`ov-specdec check`: whether two models may decode together, and whether passes are invariant."""

import sys
from collections.abc import Mapping
from typing import Any

import click

from ov_specdec.cli.options import (
    COMPILE_OPTIONS,
    DEVICE_OPTION,
    parse_properties,
    see_invariance,
    with_options,
)
from ov_specdec.cli.terminal import console, with_errors
from ov_specdec.errors import TokenizerMismatchError
from ov_specdec.loading.folder import ModelFolder
from ov_specdec.loading.locate import locate
from ov_specdec.loading.source import check_pair, open_source, pair_tokenizers
from ov_specdec.pipeline import SpeculativePipeline
from ov_specdec.stats import NOT_INVARIANT, BatchInvariance

INCOMPATIBLE = 1
BATCH_SIZES = (1, 2)
"""One sequence alone, and several that share passes, have other forms of pass."""


@click.command()
@click.argument("main")
@click.argument("draft", required=False)
@with_options((DEVICE_OPTION, *COMPILE_OPTIONS))
@with_errors
def check(main: str, draft: str | None, **options: Any) -> None:
    """Compare the tokenizers of MAIN and DRAFT; exit code 0 if they are the same, 1 if not.

    Where they are not, it says which pairings are possible (--pairing of other commands). The last
    line says whether passes of MAIN are batch-invariant on this machine: then a text is the same,
    to the bit, with any drafter or none, alone or beside others. What is seen is kept.
    """
    if draft is not None and not compare_tokenizers(main, draft):
        sys.exit(INCOMPATIBLE)
    options["properties"] = parse_properties(options["properties"]) or None
    click.echo(f"batch invariant: {check_passes(main, draft, options)}")


def check_passes(main: str, draft: str | None, options: Mapping[str, Any]) -> BatchInvariance:
    """Whether passes of the main model agree, in the settings that the pair would be run with."""
    if ModelFolder.read(locate(main)).is_encoder_decoder:
        return NOT_INVARIANT
    drafter: dict[str, Any] = {"drafter": "none"} if draft is None else {"draft": draft}
    for size in BATCH_SIZES:
        with console.status("Loading models"):
            pipeline = SpeculativePipeline(main, max_batch_size=size, **drafter, **options)
        with pipeline:
            known = see_invariance(pipeline)
        if not known.is_proven:
            break
    return known


def compare_tokenizers(main: str, draft: str) -> bool:
    """Print what is compared; whether the two may decode together."""
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
    return report.compatible
