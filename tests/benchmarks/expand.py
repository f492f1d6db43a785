"""A model at the cost of a larger one, to measure with."""

from pathlib import Path

import click

from ov_specdec.cli.terminal import console, with_errors
from ov_specdec.models.locate import embedded_folder
from tests.benchmarks.expansion.build import expand_model
from tests.benchmarks.options import OUTPUT_OPTION


@click.command()
@with_errors
@click.argument("model", required=False)
@click.option(
    "--size",
    metavar="N",
    default="1B",
    show_default=True,
    help="Parameters to come close to, such as 0.3B, 500M or 1B.",
)
@OUTPUT_OPTION
def expand(model: str | None, size: str, output: Path) -> None:
    """Expand MODEL, a Llama, to the cost of a larger one that computes the same.

    Without MODEL, the embedded main. For measuring: acceptance stays that of the real pair, and a
    pass costs what it costs at the new size. The result is exported by Optimum, and its logits are
    compared with MODEL's. What has been made before is skipped.
    """
    with console.status("Expanding") as status:
        expanded = expand_model(model or embedded_folder("main"), size, output, status.update)
    is_new = expanded.difference is not None
    click.echo(f"{expanded.folder}{'' if is_new else ' (was there already)'}")
    click.echo(f"{expanded.shape.num_parameters:,} parameters")
    if is_new:
        click.echo(str(expanded.difference))
