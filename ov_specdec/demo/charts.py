"""The data of the charts, as tables."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import pandas as pd

from ov_specdec.demo.comparison import Comparison, Run, options_of
from ov_specdec.measure.methods import interleave
from ov_specdec.options.generation import PLAIN
from ov_specdec.pipeline import SpeculativePipeline
from ov_specdec.results.stats import GenerationStats
from ov_specdec.text.prompt import Prompt

TEMPERATURES = (0.0, 0.3, 0.6, 0.9, 1.2, 1.5)
REPEATS = 3
MAX_TOKENS = 64
"""Maximum tokens of each run of the sweep, and of the example on the page."""

NUM_STEPS = len(TEMPERATURES) * REPEATS


def draft_tokens_by_round(run: Run) -> pd.DataFrame:
    """Accepted and rejected draft tokens of each round; empty before the end."""
    rows = []
    for number, round_ in enumerate(run.output.stats.rounds[1:] if run.output.stats else [], 1):
        rows.append((number, "accepted", round_.num_accepted))
        rows.append((number, "rejected", round_.num_drafted - round_.num_accepted))
    return pd.DataFrame(rows, columns=["round", "draft token", "draft tokens"])


def time_by_part(comparison: Comparison) -> pd.DataFrame:
    """Seconds in each part, of complete runs.

    The main model's prefill counts as verification; rest is rollback and all else.
    """
    rows = []
    for name, run in (("plain", comparison.plain), ("speculative", comparison.speculative)):
        if (stats := run.output.stats) is not None:
            drafting = stats.draft_seconds
            verifying = sum(round_.verify_seconds for round_ in stats.rounds)
            rows += [(name, "drafting", drafting), (name, "verifying", verifying)]
            rows.append((name, "rest", stats.seconds - drafting - verifying))
    return pd.DataFrame(rows, columns=["method", "part", "seconds"])


def sweep(
    pipeline: SpeculativePipeline, prompt: Prompt, form: Mapping[str, Any]
) -> Iterator[pd.DataFrame]:
    """Measure all temperatures, interleaved; yields a table of medians after each step.

    Raises `OptionError` for an invalid prompt.
    """
    # Without a seed, since draft lengths are not adaptive with one.
    most = min(form["max_new_tokens"] or MAX_TOKENS, MAX_TOKENS)
    given = {**form, "max_new_tokens": most, "seed": None}

    def run(own: Mapping[str, Any], temperature: float) -> GenerationStats:
        options = {**options_of({**given, "temperature": temperature}), **own}
        return pipeline.generate(prompt, **options, ignore_eos=True).stats

    methods = {"plain": partial(run, PLAIN), "speculative": partial(run, {})}
    rows = []
    for step, turn in enumerate(interleave(methods, TEMPERATURES * REPEATS)):
        temperature = TEMPERATURES[step % len(TEMPERATURES)]
        for name, stats in turn.items():
            rows.append((temperature, name, stats.tokens_per_second, stats.acceptance_rate))
        table = pd.DataFrame(rows, columns=["temperature", "method", "tokens/s", "acceptance"])
        yield table.groupby(["temperature", "method"], as_index=False).median()
