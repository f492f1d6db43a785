"""What runs: the methods by their names, and how each is built."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ov_specdec.errors import OptionError
from ov_specdec.options import MAX_DRAFT_LENGTH
from tests.benchmarks.peers.errors import BenchmarkError
from tests.benchmarks.peers.frameworks import genai, genai_batch, llama_cpp_peer, torch_peer
from tests.benchmarks.peers.load import Engine
from tests.benchmarks.peers.measurement import Runner
from tests.benchmarks.peers.own import own
from tests.benchmarks.peers.setup import Setup


@dataclass(frozen=True)
class Family:
    """Methods that differ in their draft length only, or a single one without a length.

    build: from a setup and the length, None without one, to a runner with its models loaded. serve:
    the same to an engine for many requests at once; None where there is none.
    """

    build: Callable[[Setup, int | None], Runner]
    serve: Callable[[Setup, int | None], Engine] | None = None


def own_family(drafter: str, **settings: Any) -> Family:
    """A family of this project's, with a drafter; settings: see `own`."""
    build = own(drafter, **settings)
    return Family(build, lambda setup, length: build(setup, length).engine())


SINGLE = {
    "plain": own_family("none"),
    "adaptive": own_family("model"),
    "suffix": own_family("suffix"),
    "both": own_family("both"),
    "prompt-lookup": own_family("prompt-lookup"),
    "genai-plain": Family(genai.plain, genai_batch.plain),
    "llama-cpp-plain": Family(llama_cpp_peer.plain),
    "torch-plain": Family(torch_peer.plain),
    "torch-assisted": Family(torch_peer.assisted),
}
WITH_LENGTH = {
    "constant": own_family("model"),
    # The loop of the OpenVINO notebook: states are trimmed at each rollback.
    "eager-trim": own_family("model", kv="stateful", trim=True),
    "genai-draft": Family(genai.with_draft, genai_batch.with_draft),
    "genai-prompt-lookup": Family(genai.prompt_lookup, genai_batch.prompt_lookup),
    "llama-cpp-prompt-lookup": Family(llama_cpp_peer.prompt_lookup),
}


@dataclass(frozen=True)
class Method:
    """One method: a family, and its draft length where it has one."""

    name: str
    family: Family
    length: int | None

    def build(self, setup: Setup) -> Runner:
        """Load the models. Raises `BenchmarkError` where the method cannot run here."""
        return self.family.build(setup, self.length)

    def serve(self, setup: Setup) -> Engine:
        """Load the models for many requests at once. Raises `BenchmarkError` likewise."""
        if self.family.serve is None:
            raise BenchmarkError(f"{self.name} does not answer many requests at once")
        return self.family.serve(setup, self.length)


def find_method(name: str) -> Method:
    """The method of a name: a family, and `-N` where it has a length.

    `OptionError` for a name that means nothing.
    """
    if name in SINGLE:
        return Method(name, SINGLE[name], None)
    family, length = split(name)
    if family in WITH_LENGTH and length and length <= MAX_DRAFT_LENGTH:
        return Method(name, WITH_LENGTH[family], length)
    known = [*SINGLE, *(f"{family}-N" for family in WITH_LENGTH)]
    raise OptionError(f"method '{name}' does not exist: there are {', '.join(known)}")


def split(name: str) -> tuple[str, int | None]:
    """The family of a name, and its draft length where it has one."""
    parts = re.fullmatch(r"(.+)-([1-9]\d*)", name)
    return (parts[1], int(parts[2])) if parts else (name, None)
