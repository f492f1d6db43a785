"""What a draft model needs to see: `python -m tests.draft_context [MAIN DRAFT] [--prompts FILE]`.

Prints the share of a main model's greedy tokens that the draft's most likely ones agree with, by
how many tokens of the prompt the draft is told, the latest ones. The text after them it sees whole.
"""

from pathlib import Path

import click
import numpy as np

from ov_specdec import SpeculativePipeline
from ov_specdec.bench.prompts import CODE, encode_prompts, mixed_prompts, read_prompts
from ov_specdec.cache.sequence import CachedSequence, alone

NUM_TOKENS = 96
SIZES = (8, 16, 32, 64, 128, 256, 512, 1024)


def agreement(runner, prompt, output):
    """The share of a text's tokens that are the most likely ones after what is told of a prompt."""
    cache = CachedSequence(runner, object())
    tokens = [*prompt, *output[:-1]]
    done = alone(cache.advance(tokens, num_rows=len(output)))
    equal = done.logits.argmax(axis=1) == np.array(output)
    cache.drop()
    return float(equal.mean())


@click.command(help=__doc__)
@click.argument("models", nargs=-1)
@click.option("--prompts", "file", type=Path, help="One per line; default: mixed ones of code.")
def main(models, file):
    with SpeculativePipeline(*models, fixed_sizes="none") as pipeline:
        if file is None:
            prompts = mixed_prompts(pipeline.tokenizer, CODE)
        else:
            prompts = encode_prompts(pipeline.tokenizer, read_prompts(file), None)
        options = {"max_new_tokens": NUM_TOKENS, "ignore_eos": True, "num_assistant_tokens": 0}
        outputs = [result.token_ids for result in pipeline.generate_batch(prompts, **options)]
        runner = pipeline.draft.runner
        room = runner.max_length - NUM_TOKENS
        for size in (size for size in SIZES if size <= room):
            shares = [
                agreement(runner, prompt[-size:], output)
                for prompt, output in zip(prompts, outputs, strict=True)
            ]
            click.echo(f"{size:5d} tokens of the prompt: {np.mean(shares):.3f}")


if __name__ == "__main__":
    main()
