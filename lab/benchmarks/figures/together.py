"""Several requests that come together, behind contexts that are cached."""

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from itertools import count, product

from lab.benchmarks.figures.given import Given
from lab.benchmarks.figures.requests import WARM_UP, compact, digest
from lab.benchmarks.measuring import Measurements, in_turns
from lab.benchmarks.peers.asks import Ask, decoding_speed
from lab.benchmarks.peers.methods import find_method
from lab.benchmarks.peers.worker import Worker, WorkerProcess
from lab.benchmarks.record import Key, Row
from lab.benchmarks.texts import heldout_text
from ov_specdec.text.tokenizer import load_tokenizer

OWN, STEP = 64, 97
"""Last tokens of a prompt, which are not cached; and from one context's begin to the next one's."""

KV_CACHE_GB = 4.0
"""Of each program, for the contexts of all methods: with 2 they evict each other (1 B)."""


def together(
    given: Given,
    pair: str,
    methods: Sequence[str],
    cached: Sequence[int],
    sizes: Sequence[int],
    tokens: int,
    rounds: int,
) -> Measurements:
    """Loads of some sizes: tokens per second once all requests have their first token.

    cached: tokens of prompts, nearly all of which are cached.
    """
    text = load_tokenizer(given.pairs[pair].main).encode(heldout_text())
    ends = [ids[-OWN:] for _, ids in given.prompts(pair)]
    settings = {"max_batch_size": max(sizes), "kv_cache_gb": KV_CACHE_GB}
    loaders, turns = {find_method(name).loader for name in methods}, count()
    with given.setup(pair, **settings) as setup, ExitStack() as stack:
        workers = {loader: stack.enter_context(WorkerProcess(setup)) for loader in loaders}
        for round_, length, size in product(range(-1, rounds), cached, sizes):
            first, turn = sum(sizes[: sizes.index(size)]), next(turns)
            prompts = behind_contexts(text, ends, length, round_, first)[:size]
            about: Key = {"pair": pair, "cached": length, "requests": size, "prompt": round_}
            for name in in_turns(methods, turn):
                worker = workers[find_method(name).loader]
                # The first round reads contexts, and prepares passes.
                measure = partial(serve, worker, name, prompts, tokens if round_ >= 0 else WARM_UP)
                if round_ < 0:
                    measure()
                else:
                    yield {"turn": turn, **about, "method": name}, measure


def behind_contexts(
    text: list[int], ends: Sequence[list[int]], length: int, round_: int, first: int
) -> list[list[int]]:
    """Prompts of so many tokens by their place in a load, for any size of load.

    first: number of the first place's context. The same contexts come in each round, and end with
    another prompt each time: no program has seen an output before.
    """
    prompts = []
    for place in range(first, first + len(ends)):
        begin = STEP * place
        own = ends[(place + round_) % len(ends)]
        prompts.append([*text[begin : begin + length - len(own)], *own])
    return prompts


def serve(worker: WorkerProcess, method: str, prompts: Sequence[list[int]], tokens: int) -> Row:
    """One load. What a method has kept, prefixes and outputs, no other method finds.

    A repetition has the contexts of what it repeats, and other ends: prompts are kept, too.
    """
    owner = method.removesuffix("-again")
    if owner != method:
        prompts = [[*ids[:-OWN], *reversed(ids[-OWN:])] for ids in prompts]
    asks = [
        Ask(ids, tokens, context=f"{owner}, {place} of {len(prompts)}, {len(ids)}")
        for place, ids in enumerate(prompts)
    ]
    served = worker.ask(Worker.serve, method, asks)
    text = digest(token for each in served for token in each.token_ids)
    return compact({**decoding_speed(served), "text": text})
