"""How often a draft chooses the main model's token, in each place of the main model's greedy texts.

The draft is told so many tokens of the prompt, the latest ones; the text after them it sees whole.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial

import click
import numpy as np

from ov_specdec import GenerationResult
from ov_specdec.runner.base import Runner
from ov_specdec.runner.cached_sequence import CachedSequence, alone
from tests.benchmarks.measuring import Measurements, measures
from tests.benchmarks.options import Models, model_options, prompt_options, several
from tests.benchmarks.record import Row
from tests.benchmarks.tables import across, average, table
from tests.benchmarks.texts import Prompts


def share(draft: Runner, prompt: list[int], text: Callable[[], GenerationResult]) -> Row:
    """The share of a text's tokens that a draft chooses, which is told this part of the prompt."""
    output = text().token_ids
    sequence = CachedSequence(draft, object())
    done = alone(sequence.advance([*prompt, *output[:-1]], num_rows=len(output)))
    agrees = float(np.mean(done.logits.argmax(axis=1) == output))
    sequence.discard()
    return {"agrees": agrees}


def tables(rows: Sequence[Row]) -> Iterator[str]:
    """A column for each part of the prompt."""
    yield table(rows, [], across(rows, "told", average("agrees", ".3f")))


@click.command()
@model_options
@prompt_options("tests")
@several("--told", int, (0,), says="Tokens of the prompt that the draft is told; 0: all it holds.")
@click.option("--size", default=96, show_default=True, help="Tokens of each text.")
@measures
def agreement(models: Models, prompts: Prompts, told: tuple[int, ...], size: int) -> Measurements:
    """Count how often a draft chooses the main model's token."""
    run = {"max_new_tokens": size, "ignore_eos": True, "num_assistant_tokens": 0}
    with models.pipeline("model") as pipeline:
        draft = pipeline.draft.runner
        room = draft.max_length - size
        for number, (_, prompt) in enumerate(prompts.ids(pipeline.tokenizer)):
            text = cache(partial(pipeline.generate, prompt, **run))
            for part in (part for part in told if part <= room):
                key = {"prompt": number, "told": part or "all it holds"}
                yield key, partial(share, draft, prompt[-(part or room) :], text)
