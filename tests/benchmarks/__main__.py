"""`python -m tests.benchmarks NAME` runs a command of the laboratory."""

import click

from ov_specdec.cli.app import SETTINGS, LazyCommands, run

COMMANDS = {
    "accepted-per-round": "Count accepted candidates per round, by options and rule.",
    "chart": "Draw docs/images/speed.png from the tables of docs/benchmarks.md.",
    "draft-context": "Count how often a draft agrees, by how much of the prompt it is told.",
    "drafter-replay": "Replay drafters that need no model on OUTPUTS, recorded ones.",
    "drafter-speed": "Measure drafters against plain decoding, by task, in turns.",
    "expand": "Expand MODEL, a Llama, to the cost of a larger one that computes the same.",
    "expand-whisper": "Make a Whisper with the cost of a large one's decoder out of a small one.",
    "invariance-cost": "Measure the speed with batch invariance over that without it.",
    "key-quantization": "Measure what each way to keep keys costs, on MODELS: divergence from f32.",
    "loop-overhead": "Measure the loop's time over that of its passes alone.",
    "many": "Compare one budget over many sequences with constant lengths, simulated.",
    "pairings": "Count accepted candidates per round, by pairing of tokenizers.",
    "peers": "Measure this project's ways to decode and other frameworks on the same models.",
    "planner-plot": "Draw docs/images/planner.png, what the planner weighs.",
    "planner-speed": "Measure the default draft length against constant ones and openvino.genai.",
    "recorded-drafts": "Compare the planner with constant lengths on DRAFTS, recorded ones.",
    "repairer": "Train a small T5 that repairs English, on PARAGRAPHS.",
    "same-texts": "Count texts that are not those of plain decoding alone.",
    "sampling-cost": "Measure what sampling costs beside inference, and what a seed adds to it.",
    "second-turn": "Measure what a kept KV cache spares the second turn of a conversation.",
    "seeded-acceptance": "Count candidates that are accepted, with a seed and drawn one by one.",
    "simulation": "Compare the planner with the best constant length on simulated machines.",
    "speech-speed": "Measure transcription: plain, suffix and draft against others, in turns.",
    "suffix-speed": "Measure the index of the suffix drafter: extending, proposing, memory.",
    "sweeps": "Measure draft lengths, temperatures and the cost of passes, and draw them.",
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
