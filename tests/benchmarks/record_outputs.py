"""Outputs of plain decoding, for `recite`."""

from collections.abc import Iterator, Sequence
from functools import partial

import click

from ov_specdec import SpeculativePipeline
from tests.benchmarks.measuring import Measurements, measures
from tests.benchmarks.options import Models, model_options, prompt_options
from tests.benchmarks.record import Row
from tests.benchmarks.tables import table
from tests.benchmarks.texts import Prompts


def output_of(pipeline: SpeculativePipeline, prompt: list[int], max_new_tokens: int) -> Row:
    """The ids of a prompt, and of what follows it."""
    output = pipeline.generate(prompt, max_new_tokens=max_new_tokens, cache_prompt=False).token_ids
    return {"prompt": prompt, "output": output}


def tables(rows: Sequence[Row]) -> Iterator[str]:
    """How much there is of each task."""
    columns = {
        "prompts": lambda own: str(len(own)),
        "tokens": lambda own: str(sum(len(row["output"]) for row in own)),
    }
    yield table(rows, ["task"], columns)


@click.command()
@model_options
@prompt_options("code")
@click.option("--max-new-tokens", default=128, show_default=True)
@measures
def record_outputs(models: Models, prompts: Prompts, max_new_tokens: int) -> Measurements:
    """Record outputs of plain decoding, for `recite`."""
    with models.pipeline("none") as pipeline:
        for number, (task, prompt) in enumerate(prompts.ids(pipeline.tokenizer)):
            yield (
                {"task": task, "number": number},
                partial(output_of, pipeline, prompt, max_new_tokens),
            )
