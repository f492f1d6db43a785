"""What runs: the methods by their names. Those of one loader share its models."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from ov_specdec.errors import OptionError
from ov_specdec.options.generation import MAX_DRAFT_LENGTH
from tests.benchmarks.peers import own
from tests.benchmarks.peers.errors import BenchmarkError
from tests.benchmarks.peers.frameworks import genai, genai_batch, llama_cpp_peer
from tests.benchmarks.peers.load import Engine
from tests.benchmarks.peers.measurement import Ask, Measurement, Runner
from tests.benchmarks.peers.setup import Setup

LOADERS: dict[str, Callable[[Setup], Runner]] = {
    "own": own.load,
    "own-not-invariant": partial(own.load, batch_invariant=False),
    "genai": genai.load_plain,
    "genai-draft": genai.load_with_draft,
    "genai-prompt-lookup": genai.load_prompt_lookup,
    "llama-cpp": llama_cpp_peer.load,
    "llama-cpp-prompt-lookup": partial(llama_cpp_peer.load, drafts=True),
}
"""What loads models, for one request at a time."""

ENGINES: dict[str, Callable[[Setup], Engine]] = {
    "own": own.load_engine,
    "own-not-invariant": partial(own.load_engine, batch_invariant=False),
    "genai": genai_batch.load_plain,
    "genai-draft": genai_batch.load_with_draft,
    "genai-prompt-lookup": genai_batch.load_prompt_lookup,
}
"""The same for many requests at once."""

SINGLE: dict[str, tuple[str, int | None]] = {
    "plain": ("own", 0),
    "plain-again": ("own", 0),
    "default": ("own", None),
    "default-not-invariant": ("own-not-invariant", None),
    "genai-plain": ("genai", 0),
    "genai-confidence": ("genai-draft", None),
    "llama-cpp-plain": ("llama-cpp", 0),
}
"""Methods by name: their loader, and their draft length. "plain-again" shows the scatter."""

WITH_LENGTH = {
    "constant": "own",
    "genai-draft": "genai-draft",
    "genai-prompt-lookup": "genai-prompt-lookup",
    "llama-cpp-prompt-lookup": "llama-cpp-prompt-lookup",
}
"""The loaders of methods whose names end in a draft length."""


@dataclass(frozen=True)
class Method:
    """One method: its loader, and its draft length; None where the program decides."""

    name: str
    loader: str
    length: int | None


def find_method(name: str) -> Method:
    """The method of a name. `OptionError` for a name that means nothing."""
    if name in SINGLE:
        return Method(name, *SINGLE[name])
    family, length = split(name)
    if family in WITH_LENGTH and length and length <= MAX_DRAFT_LENGTH:
        return Method(name, WITH_LENGTH[family], length)
    known = [*SINGLE, *(f"{family}-N" for family in WITH_LENGTH)]
    raise OptionError(f"method '{name}' does not exist: there are {', '.join(known)}")


def split(name: str) -> tuple[str, int | None]:
    """The family of a name, and its draft length where it has one."""
    parts = re.fullmatch(r"(.+)-([1-9]\d*)", name)
    return (parts[1], int(parts[2])) if parts else (name, None)


class Methods:
    """Methods in this process; each loader loads once."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._runners: dict[str, Runner] = {}

    def load(self, name: str) -> Runner:
        """The models of a method. Raises `BenchmarkError` where it cannot run here."""
        loader = find_method(name).loader
        if loader not in self._runners:
            self._runners[loader] = LOADERS[loader](self._setup)
        return self._runners[loader]

    def run(self, name: str, ask: Ask) -> Measurement:
        """One generation. Raises as `load` does."""
        return self.load(name).run(ask, find_method(name).length)


def load_engine(name: str, setup: Setup) -> Engine:
    """A method for many requests at once. Raises `BenchmarkError` where there is none."""
    loader = find_method(name).loader
    if loader not in ENGINES:
        raise BenchmarkError(f"{name} does not answer many requests at once")
    return ENGINES[loader](setup)
