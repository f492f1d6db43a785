"""What runs: the methods by their names. Those of one loader share its models."""

import re
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Literal, NamedTuple

from lab.benchmarks.peers.asks import BenchmarkError, Setup

LOADERS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "own": ("own", {}),
    "own-not-invariant": ("own", {"batch_invariant": False}),
    **{f"own-{drafter}": ("own", {"drafter": drafter}) for drafter in ("suffix", "model")},
    "genai": ("genai", {}),
    "genai-f16": ("genai", {"cache_precision": "f16"}),
    "genai-draft": ("genai", {"drafts": "model"}),
    "genai-prompt-lookup": ("genai", {"drafts": "lookup"}),
}
"""What loads models: a module, imported by who runs it alone, and options of its functions."""


def load(loader: str, setup: Setup, name: Literal["load", "load_engine"] = "load") -> Any:
    """A `Runner`, or an `Engine`, with its models loaded."""
    module, options = LOADERS[loader]
    return getattr(import_module(f"{__package__}.{module}"), name)(setup, **options)


class Method(NamedTuple):
    """A method: in words, its loader, and its draft length; None where the program decides.

    has_length: its name ends in the length.
    """

    words: str
    loader: str = ""
    length: int | None = None
    has_length: bool = False


METHODS: Mapping[str, Method] = {
    "plain": Method("plain decoding", "own", 0),
    "default": Method("default", "own"),
    "default-any-whitespace": Method("default, any whitespace", "own"),
    "default-not-invariant": Method("`batch_invariant=False`", "own-not-invariant"),
    "suffix": Method("suffix drafts", "own-suffix"),
    "model": Method("the draft model alone", "own-model"),
    "without-copies": Method("without escaped copies"),
    "constant": Method("constant length", "own", has_length=True),
    "genai-plain": Method("openvino.genai, plain", "genai", 0),
    "genai-plain-f16": Method("openvino.genai, plain, f16 caches", "genai-f16", 0),
    "genai-draft": Method("openvino.genai, draft model", "genai-draft", has_length=True),
    "genai-confidence": Method("openvino.genai, draft model, confidence 0.4", "genai-draft"),
    "genai-prompt-lookup": Method(
        "openvino.genai, prompt lookup", "genai-prompt-lookup", has_length=True
    ),
}
"""By name, without a length. What runs once more, with "-again", shows the scatter."""


def find_method(name: str) -> Method:
    """The method of a name. `BenchmarkError` for a name that means nothing."""
    family, length = split(name.removesuffix("-again"))
    found = METHODS.get(family)
    if found is None or not found.loader or found.has_length is (length is None):
        known = (each + "-N" * method.has_length for each, method in METHODS.items())
        raise BenchmarkError(f"method '{name}' does not exist: there are {', '.join(known)}")
    return found._replace(length=length) if length else found


def split(name: str) -> tuple[str, int | None]:
    """The family of a name, and its draft length where it has one."""
    parts = re.fullmatch(r"(.+)-([1-9]\d*)", name)
    return (parts[1], int(parts[2])) if parts else (name, None)


def label(name: str) -> str:
    """A method in words, with its draft length where it has one."""
    family, length = split(name)
    return METHODS.get(family, Method(family)).words + (f", {length}" if length else "")
