"""Times each drafter against plain decoding, in interleaved runs, to find those that pay."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path
from statistics import fmean, median, quantiles
from typing import Any

from ov_specdec.baseline import plain_options
from ov_specdec.drafters.factory import DrafterName
from ov_specdec.errors import OptionError, shorten
from ov_specdec.loading.static_shapes import WantedShapes
from ov_specdec.pipeline import SpeculativePipeline
from ov_specdec.stats import GenerationStats
from ov_specdec.text.pairing import PairingName, UsedPairing
from ov_specdec.tuning.budget import Budget
from ov_specdec.tuning.search import GAIN

PROMPTS = (
    "def read_json(path):\n",
    "class Queue:\n    def __init__(self):\n",
    "Explain the difference between a list and a tuple.",
    "Write this function again, with type hints and a docstring:\n\n"
    "def mean(values):\n    total = 0\n    for value in values:\n        total += value\n"
    "    return total / len(values)\n",
)
"""The default prompts: code, a question, and a text to quote."""

NUM_TOKENS = 64

ENOUGH_PAIRS = 4
"""Minimum number of interleaved timings for a result: single ones differ by a third."""


@dataclass(frozen=True)
class Candidate:
    """A drafter to time, with its draft model and pairing, if it has them.

    profile: the file of the pair's profile; None: no profile.
    """

    drafter: DrafterName
    draft: Path | None = None
    pairing: PairingName | None = None
    profile: Path | None = None


@dataclass(frozen=True)
class Gain:
    """The measured speedup of a candidate.

    speed, plain_speed: tokens per second after the prefill, over all prompts. ratios: speed over
    plain_speed, one for each run. tokens_per_pass: of the main model.
    """

    candidate: Candidate
    speed: float
    plain_speed: float
    ratios: tuple[float, ...]
    tokens_per_pass: float

    @property
    def ratio(self) -> float:
        """The median ratio."""
        return median(self.ratios)

    @property
    def quartiles(self) -> tuple[float, float]:
        """The lower and upper quartile of the ratios."""
        if len(self.ratios) == 1:
            return self.ratios[0], self.ratios[0]
        low, _, high = quantiles(self.ratios, n=4, method="inclusive")
        return low, high

    @property
    def is_clear(self) -> bool:
        """Whether there are enough runs for a result."""
        return len(self.ratios) >= ENOUGH_PAIRS

    @property
    def pays(self) -> bool:
        """Whether it is faster than plain decoding beyond noise."""
        return self.is_clear and self.ratio * GAIN > 1.0 and self.quartiles[0] > 1.0

    def as_dict(self) -> dict[str, Any]:
        """All of it for JSON."""
        draft = self.candidate.draft
        return {
            "drafter": self.candidate.drafter,
            "draft": None if draft is None else str(draft),
            "tokens_per_second": self.speed,
            "plain_tokens_per_second": self.plain_speed,
            "ratio": self.ratio,
            "ratios": list(self.ratios),
            "tokens_per_main_pass": self.tokens_per_pass,
            "pays": self.pays,
        }


def make_candidates(
    paired: Sequence[tuple[Path, UsedPairing | None]], profile: Path | None
) -> list[Candidate]:
    """Suffix matches, each draft model, and the first draft model with suffix matches.

    profile: of the first draft model.
    """
    models = [Candidate("model", *draft) for draft in paired]
    first = [replace(model, profile=profile) for model in models[:1]]
    both = [replace(model, drafter="both") for model in first]
    return [*first, Candidate("suffix"), *models[1:], *both]


@dataclass(frozen=True)
class Verdict:
    """The choice among candidates.

    is_clear: whether the measurements suffice. best: the fastest candidate that pays; if none pays,
    the best of them, and plain decoding should be used.
    """

    is_clear: bool
    best: Gain


def decide(gains: Sequence[Gain]) -> Verdict:
    """The fastest candidate that pays: by its ratio, and plain decoding with its profile.

    Only some candidates have a profile, which makes their plain decoding faster too. Those that
    share one are compared by their ratios, since the machine's speed drifts between candidates.
    """

    def speed(gain: Gain) -> float:
        profile = gain.candidate.profile
        alike = (other.plain_speed for other in gains if other.candidate.profile == profile)
        return gain.ratio * median(alike)

    best = max(gains, key=lambda gain: (gain.pays, speed(gain) if gain.pays else gain.ratio))
    loses = all(gain.is_clear and gain.ratio * GAIN <= 1.0 for gain in gains)
    return Verdict(best.pays or loses, best)


def measure_gain(
    main: Path,
    candidate: Candidate,
    device: str,
    prompts: Sequence[str],
    *,
    seconds: float,
    budget: Budget,
    static_shapes: WantedShapes = "none",
) -> Gain:
    """Time greedy decoding of prompts with a candidate and plainly, with the default draft length.

    seconds: of the budget, after which no further prompt starts; at least one is measured, and all
    are repeated while there is time. budget: excludes loading. The draft length is adaptive, so a
    candidate that does not pay is hardly slower than plain decoding. Raises the errors of
    `SpeculativePipeline`.
    """
    with ExitStack() as stack:
        with budget.load():
            pipeline = stack.enter_context(
                SpeculativePipeline(
                    main,
                    candidate.draft,
                    drafter=candidate.drafter,
                    pairing=candidate.pairing,
                    device=device,
                    profile=candidate.profile or "none",
                    static_shapes=static_shapes,
                )
            )
            pipeline.prepare()
        end = budget.spent + seconds
        plain, fast = zip(*_generate(pipeline, prompts, lambda: budget.spent > end), strict=True)
    times = [[stats.time_per_output_token for stats in each] for each in (plain, fast)]
    ratios = tuple(one / other for one, other in zip(*times, strict=True))
    tokens = sum(stats.generated_tokens for stats in fast)
    passes = sum(stats.main_passes for stats in fast)
    return Gain(candidate, 1.0 / fmean(times[1]), 1.0 / fmean(times[0]), ratios, tokens / passes)


def _generate(
    pipeline: SpeculativePipeline, prompts: Sequence[str], is_over: Callable[[], bool]
) -> Iterator[tuple[GenerationStats, GenerationStats]]:
    """The statistics of plain and of speculative decoding of each prompt, again and again.

    is_over: asked after each prompt.
    """
    speculative = {"max_new_tokens": NUM_TOKENS, "ignore_eos": True, "cache_prompt": False}
    plain = plain_options(speculative)
    for options in (plain, speculative):  # the first run of each takes longer
        pipeline.generate(prompts[0], **{**options, "max_new_tokens": NUM_TOKENS // 4})
    for num_done, prompt in enumerate(cycle(prompts)):
        # The speed of the machine drifts, so the order of the two alternates.
        order = (speculative, plain) if num_done % 2 else (plain, speculative)
        first, second = [pipeline.generate(prompt, **options).stats for options in order]
        if first.generated_tokens < 2:
            raise OptionError(
                f"the prompt {shorten(prompt)} leaves no room for an output in the model's "
                "context: give a shorter one"
            )
        yield (second, first) if num_done % 2 else (first, second)
        if is_over():
            break
