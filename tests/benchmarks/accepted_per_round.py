"""How many candidates a round accepts: `python -m tests.benchmarks accepted-per-round`.

Prints a table of docs/benchmarks.md. A draft is judged token by token and as a block, and a second
one from the same place, whose model is not held to the options' support, as a block; each by the
exact expectation of what would be accepted of it, so that little is left to chance.
"""

from collections.abc import Iterator
from pathlib import Path
from statistics import mean

import click
import numpy as np

from ov_specdec import GenerationOptions, SpeculativePipeline
from ov_specdec.bench.prompts import read_prompts
from ov_specdec.cache.sequence import CachedSequence, alone
from ov_specdec.sampling.from_options import make_samplers
from ov_specdec.sampling.samplers import RandomSampler
from ov_specdec.sampling.warpers import LogitsWarper
from ov_specdec.speculation.draft_length import Plan
from ov_specdec.speculation.drafters import ModelDrafter
from ov_specdec.speculation.verification import verify, verify_block, verify_tokens
from tests.benchmarks.figures import head, row
from tests.benchmarks.options import PATH, pair_options
from tests.enumeration import enumerate_outcomes
from tests.prompts import PROMPTS
from tests.running import propose, repeatable

SETTINGS = {
    "temperature 0.3": {"temperature": 0.3},
    "temperature 0.7": {"temperature": 0.7},
    "temperature 1": {"temperature": 1.0},
    "temperature 1.5": {"temperature": 1.5},
    "temperature 1, top_k 20": {"temperature": 1.0, "top_k": 20},
    "temperature 1, top_p 0.9": {"temperature": 1.0, "top_p": 0.9},
    "temperature 1, min_p 0.05": {"temperature": 1.0, "min_p": 0.05},
    "temperature 0.8, top_k 50, top_p 0.9": {"temperature": 0.8, "top_k": 50, "top_p": 0.9},
}
RULES = {"token by token": verify_tokens, "block": verify_block}


class FirstDraw:
    """A random source that decides as another one does, but whose draws are not left to chance."""

    def __init__(self, random):
        self.accept = random.accept

    def draw(self, distribution):
        return distribution.token(0)


def expected_accepted(rule, main_probs, draft) -> float:
    """The mean number of candidates that a rule accepts of this draft."""

    def run(random):
        return rule(
            main_probs.__getitem__, draft.probs, draft.tokens, FirstDraw(random)
        ).num_accepted

    return sum(count * prob for count, prob in enumerate_outcomes(run).items())


def rounds(
    pipeline: SpeculativePipeline,
    prompt: list[int],
    options: dict,
    seed: int,
    length: int,
    size: int,
) -> Iterator[dict[str, float]]:
    """Expectations for every round of one generation of `size` tokens."""
    samplers = make_samplers(
        GenerationOptions(**options), prompt_length=len(prompt), eos_token_ids=frozenset()
    )
    samplers = repeatable(samplers, seed)
    free = LogitsWarper(temperature=options["temperature"])
    main, draft_cache = (CachedSequence(model.runner) for model in (pipeline.main, pipeline.draft))
    drafts = {
        "with": ModelDrafter(draft_cache, samplers.draft),
        "without": ModelDrafter(draft_cache, RandomSampler((), free, samplers.main.random)),
    }
    tokens = list(prompt)
    while len(tokens) < len(prompt) + size:
        found = {}
        for name, drafter in drafts.items():
            draft = propose(drafter, tokens, lambda _: Plan(length, "constant")).draft
            logits = alone(main.advance(tokens, draft.tokens)).logits
            main_probs = [
                samplers.main.distribution([*tokens, *draft.tokens[:place]], scores)
                for place, scores in enumerate(logits)
            ]
            if name == "without":
                found["support"] = expected_accepted(verify_block, main_probs, draft)
                continue
            for rule, function in RULES.items():
                found[rule] = expected_accepted(function, main_probs, draft)
            result = verify(samplers.main, tokens, logits, draft)
            new = [*draft.tokens[: result.num_accepted], result.next_token]
        yield found
        tokens += new
    for cache in (main, draft_cache):
        cache.leave()


@click.command()
@pair_options
@click.option("--length", default=5, show_default=True, help="Candidates in each round.")
@click.option("--size", default=64, show_default=True, help="Tokens of each text.")
@click.option("--prompts", type=PATH, help="JSON lines with a prompt each. [those of the tests]")
@click.option("--number", default=20, show_default=True, help="How many of the prompts.")
def accepted_per_round(
    main: str | None,
    draft: str | None,
    length: int,
    size: int,
    prompts: Path | None,
    number: int,
) -> None:
    """Count accepted candidates per round, by options and rule."""
    texts = PROMPTS if prompts is None else read_prompts(prompts)
    texts = [texts[place] for place in np.linspace(0, len(texts) - 1, number).astype(int)]
    head("options", "token by token", "block", "gain", "block, draft not held to the support")
    with SpeculativePipeline(main, draft, profile="none") as pipeline:
        for name, options in SETTINGS.items():
            found = []
            for seed, text in enumerate(texts):
                ids = pipeline._generator.encode(text, GenerationOptions())
                found += rounds(pipeline, ids, options, seed, length, size)
            token, block, free = (
                mean(round_[rule] for round_ in found)
                for rule in ("token by token", "block", "support")
            )
            without = f"{free:.2f}" if len(options) > 1 else ""
            row(name, f"{token:.2f}", f"{block:.2f}", f"{block / token - 1:.1%}", without)
