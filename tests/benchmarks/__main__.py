"""`python -m tests.benchmarks NAME` runs a command of the laboratory."""

import click

from ov_specdec.cli.app import SETTINGS, LazyCommands, run

COMMANDS = {
    "accepted-per-round": "Count accepted draft tokens per round, by rule or by pairing.",
    "agreement": "Count how often a draft chooses the main model's token.",
    "charts": "Draw the charts of docs/images from the files of docs/figures.",
    "expand": "Expand MODEL, a Llama, to the cost of a larger one that computes the same.",
    "expand-whisper": "Make a Whisper with the cost of a large one's decoder out of a small one.",
    "figures": "Measure what the pages state into one file for each processor.",
    "invariance-cost": "Measure the speed with batch invariance over that without it.",
    "key-quantization": "Measure what each way to keep keys costs: divergence from f32.",
    "loop-overhead": "Measure the loop's time over that of its passes alone.",
    "planner-plot": "Draw docs/images/planner.png, what the planner weighs.",
    "recite": "Make a random model of KIND's size that recites TEXTS, to measure costs.",
    "record-outputs": "Record outputs of plain decoding, and drafts of them, for `replay`.",
    "repairer": "Train a small T5 that repairs English, on PARAGRAPHS.",
    "replay": "Replay drafters on OUTPUTS, recorded ones, without a clock.",
    "same-texts": "Count texts that are not those of plain decoding alone.",
    "sampling-cost": "Measure what sampling costs beside inference, and what a seed adds to it.",
    "simulation": "Compare the planner with the best constant length on simulated machines.",
    "table": "Print the tables of RECORDS, which other commands wrote.",
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
