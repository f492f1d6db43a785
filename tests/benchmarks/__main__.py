"""`python -m tests.benchmarks NAME` runs a command of the laboratory."""

import click

from ov_specdec.cli.app import SETTINGS, LazyCommands, run

COMMANDS = {
    "expand": "Expand MODEL, a Llama, to the cost of a larger one that computes the same.",
    "expand-whisper": "Make a Whisper with the cost of a large one's decoder out of a small one.",
}
"""The first line of each command's help."""


@click.group(
    cls=LazyCommands, package="tests.benchmarks", lines=COMMANDS, context_settings=SETTINGS
)
def benchmarks() -> None:
    """Equipment to measure ov-specdec with: models, recordings, replays and comparisons."""


def main() -> None:
    """Run the command line; exit code 2 after an error."""
    run(benchmarks, "python -m tests.benchmarks")


if __name__ == "__main__":
    main()
