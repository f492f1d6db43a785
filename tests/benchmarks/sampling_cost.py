"""What sampling costs beside inference: `python -m tests.benchmarks sampling-cost`.

Prints two tables of docs/benchmarks.md, the share of a round on the embedded pair that goes into
choosing tokens and the time of one row at a large vocabulary, and one of what a seed adds to that:
the time of a draw from the rows of a step, and how many times the one without a seed that is.
"""

from functools import partial
from statistics import median
from time import perf_counter
from unittest.mock import patch

import click
import numpy as np

from ov_specdec import GenerationOptions, SpeculativePipeline
from ov_specdec.cache.sequence import CachedSequence
from ov_specdec.sampling.from_options import make_samplers, make_warper
from ov_specdec.speculation import engine
from ov_specdec.speculation.draft_length import ConstantLength
from ov_specdec.speculation.drafters import ModelDrafter
from ov_specdec.speculation.verification import verify
from tests.benchmarks.figures import head, row
from tests.prompts import PROMPTS
from tests.running import repeatable

SETTINGS = {
    "greedy": {},
    "temperature 0.8": {"temperature": 0.8},
    "temperature 0.8, top_k 50": {"temperature": 0.8, "top_k": 50},
    "temperature 0.8, top_k 50, top_p 0.9": {"temperature": 0.8, "top_k": 50, "top_p": 0.9},
    "top_p 0.9": {"top_p": 0.9},
    "all of it": {
        "temperature": 0.8,
        "top_k": 50,
        "top_p": 0.9,
        "min_p": 0.01,
        "repetition_penalty": 1.1,
        "presence_penalty": 0.1,
        "no_repeat_ngram_size": 6,
    },
}
LARGE_VOCABULARY = 150_000
SPREADS = (1.0, 3.0, 6.0)
NUM_ROWS = 16 * 5
"""Of a step: 16 sequences, each with four candidates."""


class TimedSampler:
    """A sampler that notes the seconds that a draft model's choices take."""

    def __init__(self, sampler, clock):
        self.ends = sampler.ends
        self._sampler = sampler
        self._clock = clock

    def sample(self, tokens, row):
        return timed(self._clock, self._sampler.sample, tokens, row)


def timed(clock, function, *arguments):
    """Call a function, and append the seconds that it took to the clock."""
    start = perf_counter()
    result = function(*arguments)
    clock.append(perf_counter() - start)
    return result


def share_of_round(pipeline: SpeculativePipeline, options: dict) -> float:
    """Seconds of choosing tokens per second of inference, over the rounds after the prefill."""
    clock: list[float] = []
    inference = choosing = 0.0
    for seed, prompt in enumerate(PROMPTS[:8]):
        chosen = GenerationOptions(**options)
        ids = pipeline.tokenizer.encode(prompt)
        samplers = make_samplers(chosen, prompt_length=len(ids), eos_token_ids=frozenset())
        samplers = repeatable(samplers, seed)
        state = engine.SequenceState(ids.copy(), len(ids) + 64)
        main, draft = (CachedSequence(m.runner) for m in (pipeline.main, pipeline.draft))
        drafter = ModelDrafter(draft, TimedSampler(samplers.draft, clock))
        policy = ConstantLength(4)
        rounds = engine.Speculation(main, samplers.main, state, drafter, policy).rounds()
        with patch.object(engine, "verify", partial(timed, clock, verify)):
            next(rounds)
            clock.clear()
            stats = [round_.stats for round_ in rounds]
        main.drop()
        draft.drop()
        spent = sum(clock)
        choosing += spent
        inference += sum(s.draft_seconds + s.verify_seconds for s in stats) - spent
    return choosing / inference


def milliseconds_per_row(options: dict, spread: float) -> float:
    """Median time of warping one row of LARGE_VOCABULARY normal logits."""
    warper = make_warper(GenerationOptions(**options))
    rows = np.random.default_rng(0).normal(0, spread, (20, LARGE_VOCABULARY)).astype(np.float32)
    times = []
    for logits in np.concatenate([rows] * 3):
        start = perf_counter()
        warper(logits)
        times.append(perf_counter() - start)
    return 1000 * median(times)


def seeded_and_unseeded(options: dict, spread: float) -> tuple[float, float]:
    """Milliseconds of drawing from NUM_ROWS rows of normal logits, with a seed and without one."""
    shape = NUM_ROWS, LARGE_VOCABULARY
    rows = np.random.default_rng(0).normal(0, spread, shape).astype(np.float32)
    samplers = [
        make_samplers(
            GenerationOptions(**options, seed=seed), prompt_length=0, eos_token_ids=frozenset()
        ).main
        for seed in (1, None)
    ]
    totals = np.zeros((5, 2))
    for total in totals:
        for position, logits in enumerate(rows):
            history = [0] * position
            for i, sampler in enumerate(samplers):
                start = perf_counter()
                sampler.sample(history, logits)
                total[i] += perf_counter() - start
    seeded, unseeded = 1000 * np.median(totals, axis=0)
    return seeded, unseeded


@click.command()
def sampling_cost() -> None:
    """Measure what sampling costs beside inference, and what a seed adds to it."""
    pipeline = SpeculativePipeline()
    head("options", "choosing tokens / inference")
    for name, options in SETTINGS.items():
        share_of_round(pipeline, options)
        shares = [share_of_round(pipeline, options) for _ in range(3)]
        row(name, f"{median(shares):.1%} ({min(shares):.1%} to {max(shares):.1%})")
    spreads = [f"logits spread {spread:g}" for spread in SPREADS]
    click.echo()
    head("options", *spreads)
    for name in list(SETTINGS)[1:5]:
        row(name, *(f"{milliseconds_per_row(SETTINGS[name], s):.2f} ms" for s in SPREADS))
    click.echo()
    head("options", *spreads)
    for name in list(SETTINGS)[1:5]:
        times = [seeded_and_unseeded(SETTINGS[name], spread) for spread in SPREADS]
        row(name, *(f"{seeded:.0f} ms ({seeded / plain:.2f} x)" for seeded, plain in times))
