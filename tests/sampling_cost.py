"""What sampling costs beside inference: `python -m tests.sampling_cost`.

Prints the two tables of docs/exactness.md: the share of a round on the embedded pair that goes into
choosing tokens, and the time of one row at a large vocabulary.
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
from tests.prompts import PROMPTS

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


class TimedSampler:
    """A sampler that notes the seconds that a draft model's choices take."""

    def __init__(self, sampler, clock):
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
        chosen = GenerationOptions(**options, seed=seed if "temperature" in options else None)
        ids = pipeline.tokenizer.encode(prompt)
        samplers = make_samplers(chosen, prompt_length=len(ids), eos_token_ids=frozenset())
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
    for row in np.concatenate([rows] * 3):
        start = perf_counter()
        warper(row)
        times.append(perf_counter() - start)
    return 1000 * median(times)


def main() -> None:
    """Print two Markdown tables."""
    pipeline = SpeculativePipeline()
    click.echo("| options | choosing tokens / inference |\n|---|---|")
    for name, options in SETTINGS.items():
        share_of_round(pipeline, options)
        shares = [share_of_round(pipeline, options) for _ in range(3)]
        click.echo(f"| {name} | {median(shares):.1%} ({min(shares):.1%} to {max(shares):.1%}) |")
    click.echo("\n| options | logits spread 1 | spread 3 | spread 6 |\n|---|---|---|---|")
    for name in list(SETTINGS)[1:5]:
        cells = [f"{milliseconds_per_row(SETTINGS[name], s):.2f} ms" for s in (1.0, 3.0, 6.0)]
        click.echo(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
