"""Speed against temperature: plain and speculative decoding, interleaved."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from ov_specdec.baseline import plain_options
from ov_specdec.chunks import collect
from ov_specdec.demo.cancellation import Cancellation
from ov_specdec.demo.settings import Settings
from ov_specdec.pipeline import SpeculativePipeline
from ov_specdec.stats import GenerationStats

TEMPERATURES = (0.0, 0.3, 0.6, 0.9, 1.2, 1.5)
REPEATS = 3
MAX_TOKENS = 64
"""Tokens per run, unless the visitor asks for fewer."""

NUM_STEPS = len(TEMPERATURES) * REPEATS


@dataclass(frozen=True)
class Point:
    """Medians at one temperature; speeds in tokens per second, acceptance per draft token."""

    temperature: float
    plain: float
    speculative: float
    acceptance: float


def sweep(
    pipeline: SpeculativePipeline, settings: Settings, cancellation: Cancellation
) -> Iterator[list[Point]]:
    """Measure all temperatures, `REPEATS` times; yields the results after each step.

    It has `NUM_STEPS` steps, unless cancelled. Raises `OptionError` for an invalid prompt.
    """

    def measure(options: Mapping[str, Any]) -> GenerationStats:
        chunks = pipeline.stream(settings.prompt, **options)
        cancellation.calls(chunks.cancel)
        with chunks:
            return collect(chunks).stats

    plain: dict[float, list[GenerationStats]] = {t: [] for t in TEMPERATURES}
    speculative: dict[float, list[GenerationStats]] = {t: [] for t in TEMPERATURES}
    for _ in range(REPEATS):
        for temperature in TEMPERATURES:
            # Without a seed, since draft lengths are not adaptive with one.
            chosen = replace(
                settings,
                max_new_tokens=min(settings.max_new_tokens, MAX_TOKENS),
                temperature=temperature,
                seed=None,
            )
            options = {**chosen.options(), "ignore_eos": True}
            steps = measure(plain_options(options)), measure(options)
            if cancellation.is_set():  # the last run may be incomplete
                return
            plain[temperature].append(steps[0])
            speculative[temperature].append(steps[1])
            yield [_point(t, plain[t], speculative[t]) for t in TEMPERATURES if speculative[t]]


def _point(
    temperature: float, plain: list[GenerationStats], speculative: list[GenerationStats]
) -> Point:
    return Point(
        temperature,
        median(stats.tokens_per_second for stats in plain),
        median(stats.tokens_per_second for stats in speculative),
        median(stats.acceptance_rate for stats in speculative),
    )
