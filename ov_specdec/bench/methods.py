"""The methods that the benchmark compares: their names, and how each is built."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

from ov_specdec.bench import genai, genai_batch, torch_peer
from ov_specdec.bench.load import Engine
from ov_specdec.bench.measurement import Runner
from ov_specdec.bench.own import own
from ov_specdec.bench.setup import Setup
from ov_specdec.errors import BenchmarkError, OptionError
from ov_specdec.options import MAX_DRAFT_LENGTH

Framework = Literal["ov-specdec", "openvino.genai", "transformers"]

BASELINE = "plain"
DEFAULTS_MARK = "@default"


@dataclass(frozen=True)
class Family:
    """Methods that differ in their draft length only, or a single one without a length.

    build: from a setup and the length, None without one, to a runner with its models loaded. serve:
    the same to an engine for many requests at once; None where there is none.
    """

    framework: Framework
    summary: str
    build: Callable[[Setup, int | None], Runner]
    serve: Callable[[Setup, int | None], Engine] | None = None


def _own(summary: str, drafter: str, **settings: Any) -> Family:
    """A family of this project's, with a drafter; settings: see `own`."""
    build = own(drafter, **settings)
    return Family("ov-specdec", summary, build, lambda setup, length: build(setup, length).engine())


SINGLE = {
    "plain": _own("plain decoding", "none"),
    "adaptive": _own("draft model, adaptive length", "model"),
    "heuristic": _own(
        "draft model, heuristic length", "model", num_assistant_tokens_schedule="heuristic"
    ),
    "suffix": _own("suffix matches, adaptive length", "suffix"),
    "both": _own("suffix matches, else the draft model; adaptive length", "both"),
    "prompt-lookup": _own("prompt lookup, adaptive length", "prompt-lookup"),
    "stateful-plain": _own("plain decoding, stateful KV cache", "none", kv="stateful"),
    "stateful-adaptive": _own(
        "draft model, adaptive length, stateful KV cache", "model", kv="stateful"
    ),
    "genai-plain": Family("openvino.genai", "LLMPipeline", genai.plain, genai_batch.plain),
    "torch-plain": Family("transformers", "generate on torch, bf16", torch_peer.plain),
    "torch-assisted": Family(
        "transformers", "assisted generation on torch, bf16", torch_peer.assisted
    ),
}
WITH_LENGTH = {
    "constant": _own("draft model, constant length", "model"),
    "suffix-constant": _own("suffix matches, constant length", "suffix"),
    "lookup-constant": _own("prompt lookup, constant length", "prompt-lookup"),
    "stateful-constant": _own(
        "draft model, constant length, stateful KV cache", "model", kv="stateful"
    ),
    "eager-trim": _own(
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
    "plain",
    "adaptive",
    "heuristic",
    "constant-4",
    "suffix",
    "both",
    "prompt-lookup",
    "stateful-plain",
    "stateful-adaptive",
    "stateful-constant-4",
)
PEERS = (
    "eager-trim-4",
    "genai-plain",
    "genai-draft-4",
    "genai-prompt-lookup-4",
    "torch-plain",
    "torch-assisted",
)
GROUPS = {"own": OWN, "peers": PEERS, "all": (*OWN, *PEERS)}


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
    """The method called `name`: a family, then `-N` where it has a length, then `@default` or not.

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
    """The methods that names of methods and of groups stand for, each once, the baseline first."""
    expanded = [method for name in names for method in GROUPS.get(name, (name,))]
    return [find_method(name) for name in dict.fromkeys([BASELINE, *expanded])]
