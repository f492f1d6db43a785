"""What methods are called in tables and charts."""

from tests.benchmarks.peers.methods import split

FAMILIES = {
    "plain": "plain decoding",
    "default": "default",
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
"""By family of methods."""


def label(method: str) -> str:
    """A method in words, with its draft length where it has one."""
    family, length = split(method)
    return FAMILIES.get(family, family) + (f", {length}" if length else "")
