"""What the index of the suffix drafter costs: `python -m tests.benchmarks suffix-speed`."""

import inspect
import random
import tracemalloc
from statistics import median
from time import perf_counter

import click

from ov_specdec.bench.prompts import CODE
from ov_specdec.loading.locate import embedded_folder
from ov_specdec.speculation.suffix_index import SuffixIndex
from ov_specdec.text.tokenizer import load_tokenizer
from tests.benchmarks.figures import head, row

NUM_TOKENS, NUM_PROPOSALS, LENGTH, BATCH = 100_000, 500, 15, 1_000


def texts():
    """Token sequences of all kinds: of a real source text, random, and as repetitive as can be."""
    import click.core
    import click.types

    code = "".join(inspect.getsource(module) for module in (click.core, click.types))
    real = load_tokenizer(embedded_folder("main")).encode("\n".join([*CODE, code]))
    generator = random.Random(0)
    yield "code", [real[i % len(real)] for i in range(NUM_TOKENS)]
    yield "random", [generator.randrange(50_000) for _ in range(NUM_TOKENS)]
    yield "random of 4", [generator.randrange(4) for _ in range(NUM_TOKENS)]
    yield "one token", [7] * NUM_TOKENS


def extend_seconds(tokens):
    """Per token, by batches: the median and the worst."""
    index, seconds = SuffixIndex(), []
    for start in range(0, len(tokens), BATCH):
        watch = perf_counter()
        index.extend(tokens[start : start + BATCH])
        seconds.append((perf_counter() - watch) / BATCH)
    return median(seconds), max(seconds)


def propose_seconds(tokens):
    """Of a proposal of `LENGTH` candidates without asking the planner: the median, and of 95 %."""
    index, seconds = SuffixIndex(), []
    index.extend(tokens[: -2 * NUM_PROPOSALS])
    for end in range(len(tokens) - 2 * NUM_PROPOSALS, len(tokens), 2):
        index.extend(tokens[end : end + 2])
        sequence = tokens[: end + 2]
        watch = perf_counter()
        match = index.find(sequence)
        if match is not None:
            match.confidence  # noqa: B018 - a property that computes
            match.continuation(LENGTH)
        seconds.append(perf_counter() - watch)
    return median(seconds), sorted(seconds)[-NUM_PROPOSALS // 20]


def memory(tokens):
    """Bytes of an index."""
    tracemalloc.start()
    index = SuffixIndex()
    index.extend(tokens)
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return size


@click.command()
def suffix_speed():
    """Measure the index of the suffix drafter: extending, proposing, memory."""
    head("text", "extend, us per token (worst 1,000)", "propose, us (95 %)", "memory, MB")
    for label, tokens in texts():
        extend, propose = extend_seconds(tokens), propose_seconds(tokens)
        cells = [f"{1e6 * a:.1f} ({1e6 * b:.1f})" for a, b in (extend, propose)]
        row(label, *cells, f"{memory(tokens) / 1e6:.0f}")
