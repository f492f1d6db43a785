"""The methods that the benchmark compares: their names, and how each is built."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ov_specdec.bench.load import Engine
from ov_specdec.bench.measurement import Runner
from ov_specdec.bench.own import own
from ov_specdec.bench.setup import Setup
from ov_specdec.errors import BenchmarkError, OptionError
from ov_specdec.options import MAX_DRAFT_LENGTH

BASELINE = "plain"
DEFAULTS_MARK = "@default"


@dataclass(frozen=True)
class Family:
    """Methods that differ in their draft length only, or a single one without a length.

    framework: whose they are. build: from a setup and the length, None without one, to a runner
    with its models loaded. serve: the same to an engine for many requests at once; None where there
    is none.
    """

    framework: str
    summary: str
    build: Callable[[Setup, int | None], Runner]
    serve: Callable[[Setup, int | None], Engine] | None = None


def own_family(summary: str, drafter: str, **settings: Any) -> Family:
    """A family of this project's, with a drafter; settings: see `own`."""
    build = own(drafter, **settings)
    return Family("ov-specdec", summary, build, lambda setup, length: build(setup, length).engine())


SINGLE = {
    "plain": own_family("plain decoding", "none"),
    "adaptive": own_family("draft model, adaptive length", "model"),
    "heuristic": own_family(
        "draft model, heuristic length", "model", num_assistant_tokens_schedule="heuristic"
    ),
    "suffix": own_family("suffix matches, adaptive length", "suffix"),
    "both": own_family("suffix matches, else the draft model; adaptive length", "both"),
    "prompt-lookup": own_family("prompt lookup, adaptive length", "prompt-lookup"),
    "stateful-plain": own_family("plain decoding, stateful KV cache", "none", kv="stateful"),
    "stateful-adaptive": own_family(
        "draft model, adaptive length, stateful KV cache", "model", kv="stateful"
    ),
}
WITH_LENGTH = {
    "constant": own_family("draft model, constant length", "model"),
    "suffix-constant": own_family("suffix matches, constant length", "suffix"),
    "lookup-constant": own_family("prompt lookup, constant length", "prompt-lookup"),
    "stateful-constant": own_family(
        "draft model, constant length, stateful KV cache", "model", kv="stateful"
    ),
}


@dataclass(frozen=True)
class Method:
    """One method: a family, its draft length where it has one, and whose properties it runs with.

    takes_defaults: whether it is built with OpenVINO's defaults, whatever the setup says.
    """

    name: str
    family: Family
    length: int | None
    takes_defaults: bool

    def build(self, setup: Setup) -> Runner:
        """Load the models. Raises `BenchmarkError` where the method cannot run here."""
        chosen = setup.with_defaults() if self.takes_defaults else setup
        return self.family.build(chosen, self.length)

    def serve(self, setup: Setup) -> Engine:
        """Load the models for many requests at once. Raises `BenchmarkError` likewise."""
        if self.family.serve is None:
            raise BenchmarkError(f"{self.name} does not answer many requests at once")
        chosen = setup.with_defaults() if self.takes_defaults else setup
        return self.family.serve(chosen, self.length)


@dataclass(frozen=True)
class Catalogue:
    """The methods that a benchmark knows, and those that it runs if none are named.

    single, with_length: families by name, without a draft length and with one. groups: names for
    several methods. full, quick, loads, quick_loads: methods and groups of a whole benchmark, of a
    quick one, and of the same with several requests at a time.
    """

    single: Mapping[str, Family]
    with_length: Mapping[str, Family]
    groups: Mapping[str, tuple[str, ...]]
    full: tuple[str, ...]
    quick: tuple[str, ...]
    loads: tuple[str, ...]
    quick_loads: tuple[str, ...]

    def find(self, name: str) -> Method:
        """The method of a name: a family, `-N` where it has a length, then `@default` or not.

        `OptionError` for a name that means nothing.
        """
        stem = name.removesuffix(DEFAULTS_MARK)
        takes_defaults = stem != name
        if stem in self.single:
            return Method(name, self.single[stem], None, takes_defaults)
        parts = re.fullmatch(r"(.+)-([1-9]\d*)", stem)
        if parts and parts[1] in self.with_length and int(parts[2]) <= MAX_DRAFT_LENGTH:
            return Method(name, self.with_length[parts[1]], int(parts[2]), takes_defaults)
        known = [*self.single, *(f"{family}-N" for family in self.with_length)]
        raise OptionError(
            f"method '{name}' does not exist: there are {', '.join(known)}, each also with "
            f"{DEFAULTS_MARK} behind it, and the groups {', '.join(self.groups)}"
        )

    def select(self, names: Iterable[str]) -> list[Method]:
        """The methods that names of methods and groups stand for, each once, plain decoding first.

        `OptionError` for a name that means nothing.
        """
        expanded = [method for name in names for method in self.groups.get(name, (name,))]
        return [self.find(name) for name in dict.fromkeys([BASELINE, *expanded])]


OWN = Catalogue(
    single=SINGLE,
    with_length=WITH_LENGTH,
    groups={
        "own": (
            *("plain", "adaptive", "heuristic", "constant-4", "suffix", "both", "prompt-lookup"),
            *("stateful-plain", "stateful-adaptive", "stateful-constant-4"),
        )
    },
    full=(
        *("plain", "adaptive", "constant-2", "constant-4", "constant-8"),
        *("suffix", "prompt-lookup", "both"),
    ),
    quick=("plain", "adaptive", "constant-4"),
    loads=("plain", "constant-2", "constant-4", "adaptive"),
    quick_loads=("plain", "adaptive"),
)
"""This project's own methods."""
