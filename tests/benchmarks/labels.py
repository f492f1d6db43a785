"""What methods are called in tables and charts, and each one's colour: the same everywhere."""

from ov_specdec.palette import BLUE, GREEN, GREY, ORANGE
from tests.benchmarks.peers.methods import split

SKY, PINK, YELLOW, BROWN, VIOLET = "#56B4E9", "#CC79A7", "#E69F00", "#A6761D", "#7570B3"

FAMILIES = {
    "plain": ("plain decoding", GREY),
    "adaptive": ("default", ORANGE),
    "constant": ("constant length", BLUE),
    "suffix": ("suffix matches", GREEN),
    "prompt-lookup": ("prompt lookup", SKY),
    "genai-plain": ("openvino.genai, plain", YELLOW),
    "genai-draft": ("openvino.genai, draft model", PINK),
    "genai-prompt-lookup": ("openvino.genai, prompt lookup", PINK),
    "eager-trim": ("loop of the OpenVINO notebook", SKY),
    "llama-cpp-plain": ("llama.cpp, plain", VIOLET),
    "llama-cpp-prompt-lookup": ("llama.cpp, prompt lookup", VIOLET),
    "torch-plain": ("transformers, plain", BROWN),
    "torch-assisted": ("transformers, assisted", BROWN),
}
"""By family of methods. Those of one framework that are never in one chart may share a colour."""


def label(method: str) -> str:
    """A method in words, with its draft length where it has one."""
    family, length = split(method)
    return FAMILIES[family][0] + (f", {length}" if length else "")


def colour(method: str) -> str:
    """The colour of a method's family."""
    return FAMILIES[split(method)[0]][1]
