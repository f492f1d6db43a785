"""Interleaved runs of several methods, so that drifts of the machine's speed affect all of them."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from statistics import quantiles
from typing import TypeVar

P = TypeVar("P")
R = TypeVar("R")


def interleave(
    methods: Mapping[str, Callable[[P], R]],
    prompts: Iterable[P],
    step: Callable[[str], object] = str,
) -> Iterator[dict[str, R]]:
    """Run all methods on a prompt, then on the next one. Yields the results of each turn by method.

    Every other turn has the opposite order: A B C, C B A. step: called with the name of a method
    before each run.
    """
    for turn, prompt in enumerate(prompts):
        results = {}
        for name in list(methods)[:: -1 if turn % 2 else 1]:
            step(name)
            results[name] = methods[name](prompt)
        yield {name: results[name] for name in methods}


@dataclass(frozen=True)
class Spread:
    """Median, lower and upper quartile of some values."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> "Spread":
        """The spread of one value or more."""
        known = list(values)
        low, middle, high = quantiles(known * (2 if len(known) == 1 else 1), method="inclusive")
        return cls(middle, low, high)

    def __format__(self, form: str) -> str:
        return f"{self.median:{form}} ({self.low:{form}} to {self.high:{form}})"
