"""What sampling costs beside inference, and what a seed adds to it.

Three tables: the share of a round that goes into choosing tokens, the time of one row at a large
vocabulary, and the time of a seeded draw from the rows of a step beside that of an unseeded one.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from statistics import median
from time import perf_counter
from unittest.mock import patch

import click
import numpy as np

from ov_specdec import GenerationOptions, SpeculativePipeline, engine
from ov_specdec.drafters import ModelDrafter
from ov_specdec.engine import round as decoding
from ov_specdec.planning.draft_length import ConstantLength
from ov_specdec.runner.cached_sequence import CachedSequence
from ov_specdec.sampling.from_options import make_samplers, make_warper
from ov_specdec.sampling.verification import verify
from tests.benchmarks.measuring import Measurements, measures
from tests.benchmarks.options import Models, model_options, prompt_options
from tests.benchmarks.record import Row, select
from tests.benchmarks.tables import across, extremes, middle, table, value
from tests.benchmarks.texts import Prompts
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
SPREADS = (1.0, 3.0, 6.0)
NUM_ROWS = 16 * 5
"""Of a step: 16 sequences, each with four draft tokens."""


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


def share_of_round(pipeline: SpeculativePipeline, prompts: list[list[int]], options: dict) -> Row:
    """Seconds of choosing tokens per second of inference, over the rounds after the prefill."""
    clock: list[float] = []
    inference = choosing = 0.0
    for seed, ids in enumerate(prompts):
        chosen = GenerationOptions(**options)
        samplers = make_samplers(chosen, prompt_length=len(ids), eos_token_ids=frozenset())
        samplers = repeatable(samplers, seed)
        main, draft = pipeline.main.runner, pipeline.draft.runner
        drafter = ModelDrafter(CachedSequence(draft), TimedSampler(samplers.draft, clock))
        text = engine.Sequence(
            ids.copy(),
            len(ids) + 64,
            CachedSequence(main),
            samplers.main,
            drafter,
            ConstantLength(4),
            keeps_cache=False,
        )
        rounds = engine.Engine(main, draft).run(text)
        with patch.object(decoding, "verify", partial(timed, clock, verify)):
            next(rounds)
            clock.clear()
            stats = [round_.stats for round_ in rounds]
        spent = sum(clock)
        choosing += spent
        inference += sum(s.draft_seconds + s.verify_seconds for s in stats) - spent
    return {"share": choosing / inference}


def one_row(options: dict, spread: float, vocabulary: int) -> Row:
    """Median milliseconds of warping one row of normal logits."""
    warper = make_warper(GenerationOptions(**options))
    rows = np.random.default_rng(0).normal(0, spread, (20, vocabulary)).astype(np.float32)
    clock: list[float] = []
    for logits in np.concatenate([rows] * 3):
        timed(clock, warper, logits)
    return {"ms": 1000 * median(clock)}


def seeded_and_unseeded(options: dict, spread: float, vocabulary: int) -> Row:
    """Milliseconds of drawing from NUM_ROWS rows of normal logits, with a seed and without one."""
    shape = NUM_ROWS, vocabulary
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
    return {"seeded (ms)": seeded, "times unseeded": seeded / unseeded}


ROWS = {"one row": one_row, "seeded": seeded_and_unseeded}


def tables(rows: Sequence[Row]) -> Iterator[str]:
    """A table for each of what is timed."""
    if shares := select(rows, timed="share"):
        columns = {"choosing tokens / inference": middle("share", ".1%")}
        yield table(shares, ["options"], {**columns, "range": extremes("share", ".1%")})
    for timed_, names in (("one row", ["ms"]), ("seeded", ["seeded (ms)", "times unseeded"])):
        chosen = select(rows, timed=timed_)
        for name in names if chosen else ():
            titled = [
                {**row, "spread": f"{name}, logits spread {row['spread']:g}"} for row in chosen
            ]
            yield table(titled, ["options"], across(titled, "spread", value(name, ".2f")))


@click.command()
@model_options
@prompt_options("tests", 8)
@click.option("--rounds", default=3, show_default=True, help="After one to warm up.")
@click.option("--vocabulary", default=150_000, show_default=True, help="Of the rows.")
@measures
def sampling_cost(models: Models, prompts: Prompts, rounds: int, vocabulary: int) -> Measurements:
    """Measure what sampling costs beside inference, and what a seed adds to it."""
    with models.pipeline("model") as pipeline:
        ids = [prompt for _, prompt in prompts.ids(pipeline.tokenizer)]
        for name, options in SETTINGS.items():
            measure = partial(share_of_round, pipeline, ids, options)
            measure()
            for round_ in range(rounds):
                yield {"timed": "share", "options": name, "round": round_}, measure
    for timed_, measure in ROWS.items():
        for name in list(SETTINGS)[1:5]:
            for spread in SPREADS:
                key = {"timed": timed_, "options": name, "spread": spread}
                yield key, partial(measure, SETTINGS[name], spread, vocabulary)
