"""How often a draft chooses the main model's token, in each place of the main model's greedy texts.

The draft is told so many tokens of the prompt, the latest ones; the text after them it sees whole.
"""

from collections.abc import Sequence
from statistics import mean

import click
import numpy as np

from lab.benchmarks.models import Models
from lab.benchmarks.options import model_options, prompt_options, several
from lab.benchmarks.tables import markdown
from lab.benchmarks.texts import Prompts
from ov_specdec.cli.terminal import with_errors
from ov_specdec.options.generation import PLAIN
from ov_specdec.runner.base import Runner
from ov_specdec.runner.cached_sequence import CachedSequence, alone


def share(draft: Runner, prompt: Sequence[int], output: Sequence[int]) -> float:
    """The share of an output's tokens that a draft chooses, which is told this prompt."""
    sequence = CachedSequence(draft, object())
    done = alone(sequence.advance([*prompt, *output[:-1]], num_rows=len(output)))
    agrees = float(np.mean(done.logits.argmax(axis=1) == output))
    sequence.discard()
    return agrees


@click.command()
@with_errors
@model_options
@prompt_options("tests")
@several("--told", int, (0,), says="Tokens of the prompt that the draft is told; 0: all it holds.")
@click.option("--size", default=96, show_default=True, help="Tokens of each text.")
def agreement(models: Models, prompts: Prompts, told: tuple[int, ...], size: int) -> None:
    """Count how often a draft chooses the main model's token."""
    with models.pipeline("model") as pipeline:
        assert pipeline.draft is not None
        draft = pipeline.draft.runner
        room = draft.max_length - size
        shares: dict[int, list[float]] = {part: [] for part in told if part <= room}
        for _, prompt in prompts.ids(pipeline.tokenizer):
            run = {"max_new_tokens": size, "ignore_eos": True, **PLAIN}
            output = pipeline.generate(prompt, **run).token_ids
            for part, own in shares.items():
                own.append(share(draft, prompt[-(part or room) :], output))
    head = [str(part or "all it holds") for part in shares]
    click.echo(markdown([head, [f"{mean(own):.3f}" for own in shares.values()]]))
