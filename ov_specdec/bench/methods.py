"""The methods that the benchmark compares: their names, and how each is built."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from ov_specdec.bench import genai, torch_peer
from ov_specdec.bench.measurement import Runner
from ov_specdec.bench.own import own
from ov_specdec.bench.setup import Setup
from ov_specdec.errors import OptionError
from ov_specdec.options import MAX_DRAFT_LENGTH

Framework = Literal["ov-specdec", "openvino.genai", "transformers"]

BASELINE = "plain"
DEFAULTS_MARK = "@default"


@dataclass(frozen=True)
class Family:
    """Methods that differ in their draft length only, or a single one without a length.

    build: from a setup and the length, None without one, to a runner with its models loaded.
    """

    framework: Framework
    summary: str
    build: Callable[[Setup, int | None], Runner]


SINGLE = {
    "plain": Family("ov-specdec", "plain decoding", own("none")),
    "adaptive": Family("ov-specdec", "draft model, adaptive length", own("model")),
    "heuristic": Family(
        "ov-specdec",
        "draft model, heuristic length",
        own("model", num_assistant_tokens_schedule="heuristic"),
    ),
    "suffix": Family("ov-specdec", "suffix matches, adaptive length", own("suffix")),
    "both": Family(
        "ov-specdec", "suffix matches, else the draft model; adaptive length", own("both")
    ),
    "prompt-lookup": Family("ov-specdec", "prompt lookup, adaptive length", own("prompt-lookup")),
    "stateful-plain": Family(
        "ov-specdec", "plain decoding, stateful KV cache", own("none", kv="stateful")
    ),
    "stateful-adaptive": Family(
        "ov-specdec", "draft model, adaptive length, stateful KV cache", own("model", kv="stateful")
    ),
    "genai-plain": Family("openvino.genai", "LLMPipeline", genai.plain),
    "torch-plain": Family("transformers", "generate on torch, bf16", torch_peer.plain),
    "torch-assisted": Family(
        "transformers", "assisted generation on torch, bf16", torch_peer.assisted
    ),
}
WITH_LENGTH = {
    "constant": Family("ov-specdec", "draft model, constant length", own("model")),
    "suffix-constant": Family("ov-specdec", "suffix matches, constant length", own("suffix")),
    "lookup-constant": Family("ov-specdec", "prompt lookup, constant length", own("prompt-lookup")),
    "stateful-constant": Family(
        "ov-specdec", "draft model, constant length, stateful KV cache", own("model", kv="stateful")
    ),
    "eager-trim": Family(
        "ov-specdec",
        "the loop of the OpenVINO notebook: constant length, states trimmed at each rollback",
        own("model", kv="stateful", trim=True),
    ),
    "genai-draft": Family("openvino.genai", "LLMPipeline with the draft model", genai.with_draft),
    "genai-prompt-lookup": Family(
        "openvino.genai", "LLMPipeline with prompt lookup", genai.prompt_lookup
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
