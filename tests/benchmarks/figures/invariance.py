"""What batch invariance costs the pairs."""

from collections.abc import Sequence
from contextlib import closing

from tests.benchmarks.figures.given import Given
from tests.benchmarks.invariance_cost import costs
from tests.benchmarks.measuring import Measurements


def invariance(
    given: Given, pairs: Sequence[str], cached: Sequence[int], rounds: int
) -> Measurements:
    """Speeds with it over speeds without it, of those pairs that are given."""
    for pair in pairs:
        if pair in given.pairs:
            with closing(costs(given.pairs[pair], rounds, cached)) as measurements:
                for key, measure in measurements:
                    yield {"pair": pair, **key}, measure
