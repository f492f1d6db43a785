"""Several requests that come together, behind contexts that are cached."""

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from itertools import count, product

from lab.benchmarks.figures.given import Given
from lab.benchmarks.figures.requests import compact, digest
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
"""For contexts of their own, of all methods: with 2 they evict each other (1 B)."""


def together(
    given: Given,
    pair: str,
    methods: Sequence[str],
    cached: Sequence[int],
    sizes: Sequence[int],
    tokens: int,
    rounds: int,
    own: int = OWN,
    step: int = STEP,
    kv_cache_gb: float = KV_CACHE_GB,
) -> Measurements:
    """Loads of some sizes: tokens per second once all requests have their first token.

    cached: tokens of prompts, nearly all of which are cached. own: last tokens of a prompt, which
    are not. step: tokens from one context's begin to the next one's; 0: all share one, another in
    each turn, so that no program has seen an output before. kv_cache_gb: of each program.
    """
    text = load_tokenizer(given.pairs[pair].main).encode(heldout_text())
    ends = [ids[-own:] for _, ids in given.prompts(pair)]
    settings = {"max_batch_size": max(sizes), "kv_cache_gb": kv_cache_gb}
    loaders, turns = {find_method(name).loader for name in methods}, count()
    with given.setup(pair, **settings) as setup, ExitStack() as stack:
        workers = {loader: stack.enter_context(WorkerProcess(setup)) for loader in loaders}
        for round_, length, size in product(range(-1, rounds), cached, sizes):
            first, turn = sum(sizes[: sizes.index(size)]), next(turns)
            begins = [step * n if step else STEP * turn for n in range(first, first + size)]
            contexts = [text[begin:] for begin in begins]
            prompts = behind_contexts(contexts, ends, length, first + round_)
            about: Key = {"pair": pair, "cached": length, "requests": size, "prompt": round_}
            for name in in_turns(methods, turn):
                worker = workers[find_method(name).loader]
                measure = partial(serve, worker, name, prompts, tokens, own)
                if not step:  # reads the one context
                    serve(worker, name, prompts[:1], 1, own)
                if round_ >= 0:
                    yield {"turn": turn, **about, "method": name}, measure
                else:  # reads contexts, and prepares passes
                    serve(worker, name, prompts, tokens // 3, own)


def behind_contexts(
    contexts: Sequence[list[int]], ends: Sequence[list[int]], length: int, first: int
) -> list[list[int]]:
    """Prompts of so many tokens, one behind each context.

    first: which of the ends comes first. The same contexts come in each round, and end with another
    prompt each time: no program has seen an output before.
    """
    chosen = (ends[(place + first) % len(ends)] for place in range(len(contexts)))
    return [
        [*context[: length - len(end)], *end] for context, end in zip(contexts, chosen, strict=True)
    ]


def serve(
    worker: WorkerProcess, method: str, prompts: Sequence[list[int]], tokens: int, own: int
) -> Row:
    """One load. What a method has kept, prefixes and outputs, no other method finds.

    A repetition has the contexts of what it repeats, and other ends: prompts are kept, too.
    """
    owner = method.removesuffix("-again")
    if owner != method:
        prompts = [[*ids[:-own], *reversed(ids[-own:])] for ids in prompts]
    asks = [Ask(ids, tokens, context=f"{owner}, {digest(ids[:-own])}") for ids in prompts]
    served = worker.ask(Worker.serve, method, asks)
    text = digest(token for each in served for token in each.token_ids)
    return compact({**decoding_speed(served), "text": text})
