"""The methods that `peers` compares: their names, and how each is built."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from ov_specdec.errors import OptionError
from ov_specdec.options import MAX_DRAFT_LENGTH
from tests.benchmarks.peers.errors import BenchmarkError
from tests.benchmarks.peers.frameworks import genai, genai_batch, torch_peer
from tests.benchmarks.peers.load import Engine
from tests.benchmarks.peers.measurement import Runner
from tests.benchmarks.peers.own import own
from tests.benchmarks.peers.setup import Setup

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
    "genai-plain": Family("openvino.genai", "LLMPipeline", genai.plain, genai_batch.plain),
    "torch-plain": Family("transformers", "generate on torch, bf16", torch_peer.plain),
    "torch-assisted": Family(
        "transformers", "assisted generation on torch, bf16", torch_peer.assisted
    ),
}
WITH_LENGTH = {
    "constant": own_family("draft model, constant length", "model"),
    "suffix-constant": own_family("suffix matches, constant length", "suffix"),
    "lookup-constant": own_family("prompt lookup, constant length", "prompt-lookup"),
    "stateful-constant": own_family(
        "draft model, constant length, stateful KV cache", "model", kv="stateful"
    ),
    "eager-trim": own_family(
        "the loop of the OpenVINO notebook: constant length, states trimmed at each rollback",
        "model",
        kv="stateful",
        trim=True,
    ),
    "genai-draft": Family(
        "openvino.genai",
        "LLMPipeline with the draft model",
        genai.with_draft,
        genai_batch.with_draft,
    ),
    "genai-prompt-lookup": Family(
        "openvino.genai",
        "LLMPipeline with prompt lookup",
        genai.prompt_lookup,
        genai_batch.prompt_lookup,
    ),
}

OWN = (
    *("plain", "adaptive", "heuristic", "constant-4", "suffix", "both", "prompt-lookup"),
    *("stateful-plain", "stateful-adaptive", "stateful-constant-4"),
)
PEERS = (
    *("eager-trim-4", "genai-plain", "genai-draft-4", "genai-prompt-lookup-4"),
    *("torch-plain", "torch-assisted"),
)
GROUPS = {"own": OWN, "peers": PEERS, "all": (*OWN, *PEERS)}
"""Names for several methods."""

FULL = ("all",)
QUICK = ("plain", "adaptive", "constant-4", "genai-plain", "genai-draft-4")
LOADS = (
    *("plain", "constant-2", "constant-4", "adaptive"),
    *("genai-plain", "genai-draft-2", "genai-draft-4"),
)
QUICK_LOADS = ("plain", "adaptive", "genai-plain")
"""What is measured if no methods are named: single requests and several at a time."""


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


def find_method(name: str) -> Method:
    """The method of a name: a family, `-N` where it has a length, then `@default` or not.

    `OptionError` for a name that means nothing.
    """
    stem = name.removesuffix(DEFAULTS_MARK)
    takes_defaults = stem != name
    if stem in SINGLE:
        return Method(name, SINGLE[stem], None, takes_defaults)
    parts = re.fullmatch(r"(.+)-([1-9]\d*)", stem)
    if parts and parts[1] in WITH_LENGTH and int(parts[2]) <= MAX_DRAFT_LENGTH:
        return Method(name, WITH_LENGTH[parts[1]], int(parts[2]), takes_defaults)
    known = [*SINGLE, *(f"{family}-N" for family in WITH_LENGTH)]
    raise OptionError(
        f"method '{name}' does not exist: there are {', '.join(known)}, each also with "
        f"{DEFAULTS_MARK} behind it, and the groups {', '.join(GROUPS)}"
    )


def select_methods(names: Iterable[str]) -> list[Method]:
    """The methods that names of methods and groups stand for, each once, plain decoding first.

    `OptionError` for a name that means nothing.
    """
    expanded = [method for name in names for method in GROUPS.get(name, (name,))]
    return [find_method(name) for name in dict.fromkeys([BASELINE, *expanded])]
