"""How many draft tokens a round accepts, by verification rule or by pairing of tokenizers.

Each draft is judged by the exact expectation of what would be accepted of it, so that little is
left to chance. By rule, a draft is judged token by token and as a block, and a second one from the
same place, whose model is not held to the options' support, as a block. By pairing, the embedded
pair is taken as if its tokenizers differed: of their common tokens, some are taken away at random.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from statistics import mean
from typing import Any

import click
import numpy as np

from ov_specdec import GenerationOptions, SpeculativePipeline
from ov_specdec.drafters.base import Drafter
from ov_specdec.drafters.factory import draft_with
from ov_specdec.drafters.model import ModelDrafter
from ov_specdec.models.locate import embedded_folder
from ov_specdec.models.source import TokenizerPair, open_source, pair_tokenizers
from ov_specdec.planning.draft_length import Plan
from ov_specdec.runner.cached_sequence import CachedSequence, alone
from ov_specdec.sampling.distribution import Distribution, one_hot
from ov_specdec.sampling.from_options import make_samplers
from ov_specdec.sampling.logits import Logits
from ov_specdec.sampling.samplers import RandomSampler, Sampler
from ov_specdec.sampling.verification import Draft, verify, verify_block, verify_tokens
from ov_specdec.sampling.warpers import LogitsWarper
from ov_specdec.text.pairing import CommonTokens
from tests.benchmarks.measuring import Measurements, measures
from tests.benchmarks.options import Models, model_options, prompt_options
from tests.benchmarks.record import Row
from tests.benchmarks.tables import across, average, numbers, table
from tests.benchmarks.texts import Prompts
from tests.support.enumeration import enumerate_outcomes
from tests.support.running import propose, repeatable

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
TEMPERATURES: Mapping[str, dict[str, float]] = {
    "greedy": {},
    "temperature 0.7": {"temperature": 0.7},
    "temperature 1": {"temperature": 1.0},
}
SHARES = (1.0, 0.95, 0.8)
"""Of the tokens of a sample text, those that the tokenizers of a pair have in common."""

TOKEN, BLOCK = "token by token", "block"
FREE = "block, draft not held to the support"

Rule = Callable[..., Any]
Samplers = tuple[Sampler, Sampler]
Drafters = Callable[[SpeculativePipeline, Samplers, dict[str, float]], dict[str, Drafter]]
"""From a pipeline, samplers and options, drafters by name; the first one's drafts are taken."""

RULES: dict[str, tuple[str, Rule]] = {
    TOKEN: ("own", verify_tokens),
    BLOCK: ("own", verify_block),
    FREE: ("free", verify_block),
}
"""Whose drafts are judged, and how."""


class FirstDraw:
    """A random source that decides as another one does, but whose draws are not left to chance."""

    def __init__(self, random):
        self.accept = random.accept

    def draw(self, distribution):
        return distribution.token(0)


def expected(rule: Rule, main_probs: list[Any], draft: Draft) -> float:
    """The mean number of tokens that a rule accepts of this draft."""
    probs = draft.probs or [one_hot(token) for token in draft.tokens]

    def run(random: Any) -> int:
        return rule(main_probs.__getitem__, probs, draft.tokens, FirstDraw(random)).num_accepted

    return sum(count * prob for count, prob in enumerate_outcomes(run).items())


def distribution(sampler: Sampler, tokens: Sequence[int], row: Logits) -> Distribution:
    """What a sampler draws the next token from."""
    if isinstance(sampler, RandomSampler):
        return sampler.distribution(tokens, row)
    return one_hot(sampler.sample(tokens, row).token)


def accepted(
    pipeline: SpeculativePipeline,
    make: Drafters,
    rules: Mapping[str, tuple[str, Rule]],
    options: dict[str, float],
    tokenizers: TokenizerPair | None,
    prompt: list[int],
    seed: int,
    length: int,
    size: int,
) -> Row:
    """By rule, the mean over the rounds of one generation of so many tokens.

    Of a pair of tokenizers, also the share of these tokens that they have in common.
    """
    samplers = make_samplers(
        GenerationOptions(**options), prompt_length=len(prompt), eos_token_ids=frozenset()
    )
    samplers = repeatable(samplers, seed)
    drafters, main = make(pipeline, samplers, options), CachedSequence(pipeline.main.runner)
    tokens, found = list(prompt), {name: [] for name in rules}
    while len(tokens) < len(prompt) + size:
        judged = {}
        for name, drafter in drafters.items():
            draft = propose(drafter, tokens, lambda _: Plan(length, "constant")).draft
            logits = alone(main.advance(tokens, draft.tokens)).logits.copy()
            judged[name] = draft, logits
        for rule, (name, function) in rules.items():
            draft, logits = judged[name]
            main_probs = [
                distribution(samplers[0], [*tokens, *draft.tokens[:place]], row)
                for place, row in enumerate(logits)
            ]
            found[rule].append(expected(function, main_probs, draft))
        draft, logits = judged[next(iter(drafters))]
        result = verify(samplers[0], tokens, logits, draft)
        tokens += [*draft.tokens[: result.num_accepted], result.next_token]
    for cache in (main, *(cache for drafter in drafters.values() for cache in drafter.caches)):
        cache.free()
    means = {rule: mean(values) for rule, values in found.items()}
    if tokenizers is None:
        return means
    return {**means, "common": mean(t in tokenizers.common.draft_of for t in tokens[len(prompt) :])}


def held_and_free(
    pipeline: SpeculativePipeline, samplers: Samplers, options: dict[str, float]
) -> dict[str, Drafter]:
    """A draft with the options of the main model, and one with its temperature alone."""
    free = RandomSampler((), LogitsWarper(temperature=options["temperature"]), samplers[0].random)
    cache = CachedSequence(pipeline.draft.runner)
    return {"own": ModelDrafter(cache, samplers[1]), "free": ModelDrafter(cache, free)}


def paired(tokenizers: TokenizerPair, name: str) -> Drafters:
    """A draft with another tokenizer."""

    def make(
        pipeline: SpeculativePipeline, samplers: Samplers, _: dict[str, float]
    ) -> dict[str, Drafter]:
        pairing = replace(tokenizers, pairing=name)
        return {"own": draft_with(pipeline.draft.runner, samplers[1], pairing)}

    return make


def with_share(tokenizers: TokenizerPair, share: float) -> TokenizerPair:
    """The same tokenizers with fewer common tokens: so many of a sample text's."""
    own = tokenizers.common
    order = np.random.default_rng(0).permutation(len(own.main_ids))
    while True:
        kept = np.sort(order)
        fewer = replace(tokenizers)
        fewer.__dict__["common"] = CommonTokens(
            own.main_ids[kept], own.draft_ids[kept], own.special
        )
        if fewer.share_of_text <= share:
            return fewer
        order = order[:-50]


def pairings_of(models: Models) -> Iterator[tuple[str, TokenizerPair, str]]:
    """Pairings by name: of two tokenizers as they are, or of equal ones with fewer in common."""
    tokenizers = pair_tokenizers(open_source(models.main), open_source(models.draft))
    yield "retokenize", tokenizers, "retokenize"
    if models.main != embedded_folder("main"):
        yield "intersection", tokenizers, "intersection"
        return
    for share in SHARES:
        yield f"intersection, {share:.0%}", with_share(tokenizers, share), "intersection"


def tables(rows: Sequence[Row]) -> Iterator[str]:
    """Means over texts, by options or by pairing."""
    if chosen := [row for row in rows if TOKEN in row]:
        yield table(
            chosen,
            ["options"],
            {
                TOKEN: average(TOKEN),
                BLOCK: average(BLOCK),
                "gain": lambda own: f"{gain(own):.1%}",
                FREE: average(FREE),
            },
        )
    if chosen := [row for row in rows if "pairing" in row]:
        common = {"common tokens of the text": average("common", ".0%")}
        yield table(chosen, ["pairing"], common | across(chosen, "options", average("accepted")))


def gain(rows: Sequence[Row]) -> float:
    """What a block accepts over what single tokens do."""
    return mean(numbers(rows, BLOCK)) / mean(numbers(rows, TOKEN)) - 1


def cases(by: str, models: Models) -> Iterator[tuple[dict[str, str], tuple[Any, ...]]]:
    """What is judged: its key, and who drafts, rules, options and tokenizers."""
    if by == "rule":
        for name, options in SETTINGS.items():
            rules = {rule: RULES[rule] for rule in (RULES if len(options) > 1 else (TOKEN, BLOCK))}
            yield {"options": name}, (held_and_free, rules, options, None)
        return
    rules = {"accepted": ("own", verify_block)}
    for name, pair, pairing in pairings_of(models):
        for title, options in TEMPERATURES.items():
            yield {"pairing": name, "options": title}, (paired(pair, pairing), rules, options, pair)


@click.command()
@click.argument("by", type=click.Choice(["rule", "pairing"]))
@model_options
@prompt_options("tests", 20)
@click.option("--length", default=5, show_default=True, help="Draft tokens in each round.")
@click.option("--size", default=64, show_default=True, help="Tokens of each text.")
@measures
def accepted_per_round(
    by: str, models: Models, prompts: Prompts, length: int, size: int
) -> Measurements:
    """Count accepted draft tokens per round, by rule or by pairing."""
    with models.pipeline("model", pairing="auto" if by == "pairing" else None) as pipeline:
        for key, case in cases(by, models):
            for number, (_, prompt) in enumerate(prompts.ids(pipeline.tokenizer)):
                measure = partial(accepted, pipeline, *case, prompt, number, length, size)
                yield {**key, "prompt": number}, measure
