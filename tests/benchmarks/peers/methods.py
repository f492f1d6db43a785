"""What runs: the methods by their names. Those of one loader share its models."""

import re
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Literal, NamedTuple

from tests.benchmarks.peers.asks import BenchmarkError, Setup

LOADERS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "own": ("own", {}),
    "own-not-invariant": ("own", {"batch_invariant": False}),
    "genai": ("genai", {}),
    "genai-draft": ("genai", {"drafts": "model"}),
    "genai-prompt-lookup": ("genai", {"drafts": "lookup"}),
    "llama-cpp": ("llama_cpp_peer", {}),
    "llama-cpp-prompt-lookup": ("llama_cpp_peer", {"drafts": True}),
}
"""What loads models: a module, imported by who runs it alone, and options of its functions."""


def load(loader: str, setup: Setup, name: Literal["load", "load_engine"] = "load") -> Any:
    """A `Runner`, or an `Engine`, with its models loaded."""
    module, options = LOADERS[loader]
    return getattr(import_module(f"{__package__}.{module}"), name)(setup, **options)


class Method(NamedTuple):
    """A method: its loader, and its draft length; None where the program decides."""

    loader: str
    length: int | None


SINGLE = {
    "plain": Method("own", 0),
    "plain-again": Method("own", 0),
    "default": Method("own", None),
    "default-any-whitespace": Method("own", None),
    "default-not-invariant": Method("own-not-invariant", None),
    "genai-plain": Method("genai", 0),
    "genai-plain-again": Method("genai", 0),
    "genai-confidence": Method("genai-draft", None),
    "llama-cpp-plain": Method("llama-cpp", 0),
}
"""Methods by name. Those that decode plainly "again" show the scatter."""

WITH_LENGTH = ("constant", "genai-draft", "genai-prompt-lookup", "llama-cpp-prompt-lookup")
"""Beginnings of methods whose names end in a draft length; but the first, loaders."""

FAMILIES = {
    "plain": "plain decoding",
    "default": "default",
    "default-any-whitespace": "default, any whitespace",
    "default-not-invariant": "`batch_invariant=False`",
    "without-copies": "without escaped copies",
    "constant": "constant length",
    "genai-plain": "openvino.genai, plain",
    "genai-draft": "openvino.genai, draft model",
    "genai-confidence": "openvino.genai, draft model, confidence 0.4",
    "genai-prompt-lookup": "openvino.genai, prompt lookup",
    "llama-cpp-plain": "llama.cpp, plain",
    "llama-cpp-prompt-lookup": "llama.cpp, prompt lookup",
}
"""What families of methods are called in tables and charts."""


def find_method(name: str) -> Method:
    """The method of a name. `BenchmarkError` for a name that means nothing."""
    if name in SINGLE:
        return SINGLE[name]
    family, length = split(name)
    if family in WITH_LENGTH and length:
        return Method("own" if family == "constant" else family, length)
    known = [*SINGLE, *(f"{family}-N" for family in WITH_LENGTH)]
    raise BenchmarkError(f"method '{name}' does not exist: there are {', '.join(known)}")


def split(name: str) -> tuple[str, int | None]:
    """The family of a name, and its draft length where it has one."""
    parts = re.fullmatch(r"(.+)-([1-9]\d*)", name)
    return (parts[1], int(parts[2])) if parts else (name, None)


def label(method: str) -> str:
    """A method in words, with its draft length where it has one."""
    family, length = split(method)
    return FAMILIES.get(family, family) + (f", {length}" if length else "")
