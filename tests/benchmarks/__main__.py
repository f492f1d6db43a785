"""`python -m tests.benchmarks NAME` runs a command of the laboratory."""

import click

from ov_specdec.cli.app import SETTINGS, LazyCommands, run

COMMANDS = {
    "agreement": "Count how often a draft chooses the main model's token.",
    "charts": "Draw the charts of docs/images from the files of docs/figures.",
    "compare-drafts": "Compare two drafts of one main model, alone and with several requests.",
    "compare-figures": "Compare two files of figures, OLD and NEW, cell by cell.",
    "expand": "Expand MODEL, a Llama, to the cost of a larger one that computes the same.",
    "figures": "Measure what the pages state into one file for each column.",
    "record-outputs": "Record outputs of plain decoding, and drafts of them, for `replay`.",
    "replay": "Compare the planner with constant lengths on recorded OUTPUTS, without a clock.",
}
"""The first line of each command's help."""


@click.group(
    cls=LazyCommands, package="tests.benchmarks", lines=COMMANDS, context_settings=SETTINGS
)
def benchmarks() -> None:
    """Equipment to measure ov-specdec with: models, recordings and comparisons."""


def main() -> None:
    """Run the command line; exit code 2 after an error."""
    run(benchmarks, "python -m tests.benchmarks")


if __name__ == "__main__":
    main()
