"""How much the loop adds to its passes.

It is compared with the sum of the times of the same passes, in the same order, as bare `infer()`
calls on tensors that are set already.
"""

from collections.abc import Iterator, Sequence
from functools import cache, partial
from time import perf_counter
from unittest.mock import patch

import click

from ov_specdec.runner.packed import PackedModel
from tests.benchmarks.measuring import Measurements, measures
from tests.benchmarks.options import Models, model_options, prompt_options, several
from tests.benchmarks.record import Row
from tests.benchmarks.tables import extremes, middle, table
from tests.benchmarks.texts import Prompts


def record(pipeline, prompt, options):
    """The passes of one generation after its prefill: model, input tensors, what they held."""
    passes, infer = [], PackedModel._infer

    def note(model, tensors):
        own = {name: tensor for name, tensor in tensors.items() if name in model._inputs}
        passes.append((model, own, {name: tensor.data.copy() for name, tensor in own.items()}))
        return infer(model, tensors)

    with patch.object(PackedModel, "_infer", note):
        pipeline.generate(prompt, **options)
    return passes[1:]


def replay(passes):
    """Seconds of bare `infer()` calls over recorded passes."""
    seconds = 0.0
    for model, tensors, held in passes:
        for name in tensors:
            tensors[name].data[...] = held[name]
            model._request.set_tensor(name, tensors[name])
            model._bound[name] = tensors[name]
        start = perf_counter()
        model._request.infer(share_outputs=True)
        seconds += perf_counter() - start
    return seconds


def over_passes(pipeline, recorded, prompt, options) -> Row:
    """The time of a generation after its first token, over that of its passes alone."""
    stats = pipeline.generate(prompt, **options).stats
    return {"ratio": (stats.seconds - stats.time_to_first_token) / replay(recorded())}


def tables(rows: Sequence[Row]) -> Iterator[str]:
    """A line for each draft length."""
    columns = {"loop / passes alone": middle("ratio", ".3f"), "range": extremes("ratio", ".3f")}
    yield table(rows, ["draft length"], columns)


@click.command()
@model_options
@prompt_options("tests", 4)
@several("--lengths", int, (4, 6, 8), says="Draft lengths.")
@click.option("--rounds", default=5, show_default=True, help="Generations per prompt.")
@click.option("--max-new-tokens", default=128, show_default=True)
@measures
def loop_overhead(
    models: Models, prompts: Prompts, lengths: tuple[int, ...], rounds: int, max_new_tokens: int
) -> Measurements:
    """Measure the loop's time over that of its passes alone."""
    with models.pipeline() as pipeline:
        for length in lengths:
            options = {"num_assistant_tokens": length, "ignore_eos": True}
            options["max_new_tokens"] = max_new_tokens
            for number, (_, prompt) in enumerate(prompts.ids(pipeline.tokenizer)):
                recorded = cache(partial(record, pipeline, prompt, options))
                for round_ in range(rounds):
                    key = {"draft length": length, "prompt": number, "round": round_}
                    yield key, partial(over_passes, pipeline, recorded, prompt, options)
