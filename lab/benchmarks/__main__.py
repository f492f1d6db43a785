"""`python -m lab.benchmarks NAME` runs a command of the laboratory."""

import click

from ov_specdec.cli.app import SETTINGS, LazyCommands, run

NAMES = (
    *("agreement", "charts", "compare-figures", "expand", "figures"),
    *("record-outputs", "replay"),
)
MODULES = {name: name.replace("-", "_") for name in NAMES} | {"figures": "figures.command"}


@click.group(cls=LazyCommands, package="lab.benchmarks", modules=MODULES, context_settings=SETTINGS)
def benchmarks() -> None:
    """Equipment to measure ov-specdec with: models, recordings and comparisons."""


def main() -> None:
    """Run the command line; exit code 2 after an error."""
    run(benchmarks, "python -m lab.benchmarks")


if __name__ == "__main__":
    main()
