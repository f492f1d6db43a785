"""Single requests: drafters, draft lengths and openvino.genai, interleaved in one process."""

from collections.abc import Sequence
from functools import partial
from itertools import count, product

from ov_specdec import SpeculativePipeline
from ov_specdec.text.tokenizer import load_tokenizer
from tests.benchmarks.figures.given import Given
from tests.benchmarks.figures.in_process import InProcess, compact
from tests.benchmarks.measuring import Measurements, in_turns
from tests.benchmarks.record import Key, Row
from tests.benchmarks.texts import Prompts, long_text

ANSWER, QUESTION = 16, 20
"""Tokens of the answer in a first turn, and of the question in a second one."""


def requests(
    given: Given,
    pair: str,
    methods: Sequence[str],
    sets: Sequence[str],
    temperatures: Sequence[float],
    tokens: int,
    rounds: int,
    *,
    ends: bool = False,
) -> Measurements:
    """Prompts of sets, one after the other; each by all methods, at one temperature after another.

    tokens: of each output. ends: see `InProcess`.
    """
    models = given.pairs[pair]
    tokenizer = load_tokenizer(models.main)
    prompts = {name: Prompts.read(name).ids(tokenizer) for name in sets}
    size = min(map(len, prompts.values()))
    turns = count()
    with given.setup(pair) as setup, InProcess(models, setup, methods, ends=ends) as own:
        own.warm_up(methods, prompts[sets[0]][-1][1])
        for place, name, heat in product(range(size * rounds), sets, temperatures):
            task, ids = prompts[name][place % len(prompts[name])]
            turn = next(turns)
            for method in in_turns(methods, turn):
                about: Key = {"prompts": name, "task": task, "heat": heat}
                key: Key = {"turn": turn, **about, "method": method}
                yield key, partial(own.run, method, ids, tokens, heat)


def second_turns(given: Given, rounds: int, first: int) -> Measurements:
    """The first token of a second turn, on the caches of the first turn and on empty ones.

    first: tokens of the first prompt.
    """
    for pair, models in given.pairs.items():
        with models.pipeline() as pipeline:
            pipeline.prepare()
            text = pipeline.tokenizer.encode(long_text())
            second_turn(pipeline, text, first)
            for turn in range(1, rounds + 1):
                own = text[37 * turn :]
                key: Key = {"turn": turn, "pair": pair}
                yield key, partial(second_turn, pipeline, own, first)


def second_turn(pipeline: SpeculativePipeline, text: list[int], first: int) -> Row:
    """Seconds to the first token of one second turn, with the caches kept and without."""
    prompt = text[:first]
    answer = pipeline.generate(prompt, max_new_tokens=ANSWER, ignore_eos=True).token_ids
    second = [*prompt, *answer, *text[first : first + QUESTION]]
    kept = pipeline.generate(second, max_new_tokens=1).stats
    fresh = pipeline.generate(second, max_new_tokens=1, cache_prompt=False).stats
    return compact(
        {
            "kept": kept.time_to_first_token,
            "fresh": fresh.time_to_first_token,
            "cached": kept.cached_tokens,
        }
    )
