"""How many texts are not those of plain decoding alone, by the way to them."""

from collections.abc import Sequence
from contextlib import closing

from tests.benchmarks.figures.given import Given
from tests.benchmarks.measuring import Measurements
from tests.benchmarks.same_texts import differing
from tests.benchmarks.texts import Prompts


def texts(given: Given, pairs: Sequence[str], number: int, tokens: int) -> Measurements:
    """Counts of some prompts of each pair that is given: see `same_texts`."""
    for pair in (each for each in pairs if each in given.pairs):
        prompts = Prompts.read("tests", number)
        with closing(differing(given.pairs[pair], prompts, tokens)) as measurements:
            for key, measure in measurements:
                yield {"pair": pair, **key}, measure
