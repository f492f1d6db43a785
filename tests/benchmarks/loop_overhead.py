"""How much the loop adds to its passes: `python -m tests.benchmarks loop-overhead`.

It is compared with the sum of the times of the same passes, in the same order, as bare `infer()`
calls on tensors that are set already. Prints a table of docs/benchmarks.md.
"""

from statistics import median
from time import perf_counter
from unittest.mock import patch

import click

from ov_specdec import SpeculativePipeline
from ov_specdec.cache.packed import PackedModel
from tests.benchmarks.figures import head, row
from tests.benchmarks.options import pair_options
from tests.prompts import PROMPTS

LENGTHS = (4, 6, 8)


def record(pipeline, prompt, options):
    """The passes of one generation after its prefill: model, input tensors, what they held."""
    passes, infer = [], PackedModel._infer

    def note(model, feed):
        held = {name: tensor.data.copy() for name, tensor in feed.tensors.items()}
        passes.append((model, feed.tensors.copy(), held))
        return infer(model, feed)

    with patch.object(PackedModel, "_infer", note):
        pipeline.generate(prompt, **options)
    return passes[1:]


def replay(passes):
    """Seconds of bare `infer()` calls over recorded passes."""
    seconds = 0.0
    for model, tensors, held in passes:
        for name in model._inputs:
            tensors[name].data[...] = held[name]
            model._request.set_tensor(name, tensors[name])
            model._bound[name] = tensors[name]
        start = perf_counter()
        model._request.infer(share_outputs=True)
        seconds += perf_counter() - start
    return seconds


@click.command()
@pair_options
@click.option("--repeats", default=5, show_default=True, help="Generations per prompt.")
@click.option("--max-new-tokens", default=128, show_default=True)
def loop_overhead(main: str | None, draft: str | None, repeats: int, max_new_tokens: int) -> None:
    """Measure the loop's time over that of its passes alone."""
    pipeline = SpeculativePipeline(main, draft, profile="none")
    head("draft length", "loop / passes alone", "range")
    for length in LENGTHS:
        options = {
            "num_assistant_tokens": length,
            "max_new_tokens": max_new_tokens,
            "ignore_eos": True,
        }
        ratios = []
        for prompt in PROMPTS[:4]:
            passes = record(pipeline, prompt, options)
            for _ in range(repeats):
                stats = pipeline.generate(prompt, **options).stats
                loop = stats.seconds - stats.time_to_first_token
                ratios.append(loop / replay(passes))
        row(length, f"{median(ratios):.3f}", f"{min(ratios):.3f} to {max(ratios):.3f}")
