"""How many candidates a round accepts with each pairing: `python -m tests.benchmarks pairings`.

Prints a table of docs/benchmarks.md. Without models it is the embedded pair, as if its tokenizers
differed: of their common tokens, some are taken away at random.
"""

from dataclasses import replace

import click
import numpy as np

from ov_specdec import GenerationOptions, SpeculativePipeline
from ov_specdec.cache.sequence import CachedSequence
from ov_specdec.loading.locate import embedded_folder, locate
from ov_specdec.loading.source import open_source, pair_tokenizers
from ov_specdec.sampling.from_options import make_samplers
from ov_specdec.speculation.draft_length import ConstantLength
from ov_specdec.speculation.drafters.pairing import DraftModel, Pairing
from ov_specdec.speculation.engine import SequenceState, Speculation
from ov_specdec.text.pairing import CommonTokens
from tests.benchmarks.figures import head, row
from tests.benchmarks.options import pair_options
from tests.prompts import PROMPTS
from tests.running import repeatable

TEMPERATURES = (None, 0.7, 1.0)
SHARES = (1.0, 0.95, 0.8)
LENGTH = 5


def with_share(tokenizers, share):
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


def accepted_per_round(pipeline, tokenizers, name, temperature, size, number):
    """Candidates accepted per round, and the share of the texts' tokens that are common ones."""
    model = DraftModel(pipeline.draft.runner, Pairing(name, tokenizers))
    accepted = rounds = common = tokens = 0
    for seed, prompt in enumerate(PROMPTS[:number]):
        ids = pipeline.tokenizer.encode(prompt)
        given = {} if temperature is None else {"temperature": temperature}
        samplers = make_samplers(
            GenerationOptions(**given), prompt_length=len(ids), eos_token_ids=frozenset()
        )
        samplers = repeatable(samplers, seed)
        state = SequenceState(ids.copy(), len(ids) + size)
        main, drafter = CachedSequence(pipeline.main.runner), model.make(samplers.draft)
        speculation = Speculation(main, samplers.main, state, drafter, ConstantLength(LENGTH))
        for round_ in speculation.rounds():
            rounds += bool(round_.candidates)
            accepted += round_.stats.num_accepted
            common += sum(token in tokenizers.common.draft_of for token in round_.tokens)
            tokens += len(round_.tokens)
        for cache in (main, *drafter.caches):
            cache.leave()
    return accepted / max(rounds, 1), common / tokens


@click.command()
@pair_options
@click.option("--size", default=64, show_default=True, help="Tokens of each text.")
@click.option("--number", default=20, show_default=True, help="How many prompts.")
def pairings(main: str | None, draft: str | None, size: int, number: int) -> None:
    """Count accepted candidates per round, by pairing of tokenizers."""
    folders = locate(main or embedded_folder("main")), locate(draft or embedded_folder("draft"))
    tokenizers = pair_tokenizers(*map(open_source, folders))
    cases = [(tokenizers, "retokenize")]
    if main or draft:
        cases.append((tokenizers, "intersection"))
    else:
        cases += [(with_share(tokenizers, share), "intersection") for share in SHARES]
    head("pairing", "common tokens of the text", "greedy", "temperature 0.7", "temperature 1")
    with SpeculativePipeline(*folders, pairing="auto", profile="none") as pipeline:
        for pair, name in cases:
            found = [
                accepted_per_round(pipeline, pair, name, temperature, size, number)
                for temperature in TEMPERATURES
            ]
            row(name, f"{found[0][1]:.0%}", *(f"{accepted:.2f}" for accepted, _ in found))
