"""Outputs of plain decoding, and what a draft model would have drafted in each place of them."""

import json
from pathlib import Path
from typing import Any

import click

from lab.benchmarks.models import Models
from lab.benchmarks.options import PATH, model_options, prompt_options
from lab.benchmarks.record import Row
from lab.benchmarks.texts import Prompts
from ov_specdec import SpeculativePipeline
from ov_specdec.cli.terminal import with_errors
from ov_specdec.runner.base import Runner
from ov_specdec.runner.cached_sequence import CachedSequence, alone


def output_of(pipeline: SpeculativePipeline, prompt: list[int], drafts: int, **options: Any) -> Row:
    """The ids of what follows a prompt, and drafts of so many tokens in each place."""
    options |= {"num_assistant_tokens": 0, "cache_prompt": False}
    output = pipeline.generate(prompt, **options).token_ids
    row: Row = {"prompt": prompt, "output": output}
    if drafts and pipeline.draft:
        row |= {"right": drafts_of(pipeline.draft.runner, prompt, output, drafts), "most": drafts}
    return row


def drafts_of(runner: Runner, prompt: list[int], output: list[int], size: int) -> list[int]:
    """In each place of a text: how many of so many draft tokens agree with it."""
    text, cache, right = [*prompt, *output], CachedSequence(runner), []
    for place in range(len(prompt) + 1, len(text) - size):
        for length in range(size + 1):
            tokens = text[place : place + length]
            row = alone(cache.advance(text[:place], tokens, num_rows=1)).logits[0]
            if length == size or int(row.argmax()) != text[place + length]:
                break
        right.append(length)
    cache.discard()
    return right


@click.command()
@with_errors
@model_options
@prompt_options("code")
@click.option("--max-new-tokens", default=128, show_default=True)
@click.option("--ignore-eos", is_flag=True, help="Go on after the end of an output.")
@click.option("--drafts", default=0, show_default=True, help="Draft so many tokens in each place.")
@click.option("--output", type=PATH, required=True, help="File of JSON lines to write.")
def record_outputs(
    models: Models,
    prompts: Prompts,
    max_new_tokens: int,
    ignore_eos: bool,
    drafts: int,
    output: Path,
) -> None:
    """Record outputs of plain decoding, and drafts of them, for `replay`."""
    options = {"max_new_tokens": max_new_tokens, "ignore_eos": ignore_eos}
    with models.pipeline("model" if drafts else "none") as pipeline, output.open("w") as file:
        pipeline.measure_costs()  # not between outputs, as drafts are made past its loop
        for task, prompt in prompts.ids(pipeline.tokenizer):
            row = output_of(pipeline, prompt, drafts, **options)
            file.write(json.dumps({"task": task, **row}) + "\n")
