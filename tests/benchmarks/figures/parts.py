"""The parts of the figures: what each measures, how long at most, and what it needs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from tests.benchmarks.figures.alone import requests, second_turns
from tests.benchmarks.figures.given import Given
from tests.benchmarks.figures.invariance import invariance
from tests.benchmarks.figures.load import load
from tests.benchmarks.figures.speech import speech
from tests.benchmarks.figures.workers import first_processes, frameworks, many, memory
from tests.benchmarks.measuring import Measurements

EMBEDDED = (
    *("plain", "adaptive", *(f"constant-{n}" for n in (3, 5, 7, 9, 12, 15))),
    *("genai-plain", *(f"genai-draft-{n}" for n in (4, 6, 8, 10, 12))),
)
EXPANDED = (
    *("plain", "adaptive", *(f"constant-{n}" for n in (2, 3, 4, 7))),
    *("genai-plain", *(f"genai-draft-{n}" for n in (2, 3, 4))),
)
TASKS = (
    *("plain", "suffix", "prompt-lookup"),
    *("genai-plain", *(f"genai-prompt-lookup-{n}" for n in (2, 3, 5))),
)
LOADS = ("plain", "adaptive", "genai-plain", *(f"genai-draft-{n}" for n in (2, 4, 6)))
LOADS_EXPANDED = ("plain", "adaptive", "genai-plain", "genai-draft-2")
FRAMEWORKS = ("plain", "adaptive", "eager-trim-2", "torch-plain", "torch-assisted")
LLAMA_CPP = ("plain", "suffix", "llama-cpp-plain", "llama-cpp-prompt-lookup-3")
MEMORY = {
    "embedded": (
        *(("plain", "none"), ("plain", "auto")),
        *(("adaptive", "none"), ("adaptive", (8,)), ("adaptive", "auto"), ("adaptive", (2, 4, 8))),
        *(("genai-plain", None), ("genai-draft-8", None)),
    ),
    "chat": (("suffix", "none"), ("suffix", "auto"), ("genai-prompt-lookup-3", None)),
    "expanded": (("adaptive", "none"), ("adaptive", "auto"), ("genai-draft-2", None)),
}


@dataclass(frozen=True)
class Part:
    """One part. minutes: most that it takes of a whole run. needs: a pair, or speech."""

    minutes: float
    needs: str
    measure: Callable[[Given], Measurements]


PARTS: Mapping[str, Part] = {
    "embedded": Part(
        7,
        "embedded",
        partial(
            requests,
            pair="embedded",
            methods=EMBEDDED,
            sets=("code", "heldout"),
            temperatures=(0.0, 0.8),
            tokens=96,
            rounds=4,
        ),
    ),
    "tasks": Part(
        6,
        "chat",
        partial(
            requests,
            pair="chat",
            methods=TASKS,
            sets=("tasks",),
            temperatures=(0.0,),
            tokens=64,
            rounds=1,
            ends=True,
        ),
    ),
    "concurrency": Part(
        4,
        "embedded",
        partial(
            many,
            pair="embedded",
            methods=LOADS,
            sizes=(1, 4, 8, 16),
            prompt_set="code",
            tokens=96,
            rounds=8,
        ),
    ),
    "expanded": Part(
        8,
        "expanded",
        partial(
            requests,
            pair="expanded",
            methods=EXPANDED,
            sets=("heldout", "code"),
            temperatures=(0.0, 0.8),
            tokens=64,
            rounds=1,
        ),
    ),
    "memory": Part(4, "embedded", partial(memory, cases=MEMORY)),
    "processes": Part(
        2,
        "embedded",
        partial(first_processes, pair="embedded", runs=10, tokens=128, rounds=8),
    ),
    "second-turns": Part(1.5, "embedded", partial(second_turns, rounds=8, first=484)),
    "speech": Part(2, "speech", partial(speech, rounds=6)),
    "concurrency-expanded": Part(
        4,
        "expanded",
        partial(
            many,
            pair="expanded",
            methods=LOADS_EXPANDED,
            sizes=(4, 8, 16),
            prompt_set="code",
            tokens=32,
            rounds=2,
        ),
    ),
    "invariance": Part(
        4,
        "embedded",
        partial(invariance, pairs=("embedded", "chat"), cached=(200, 1900), rounds=5),
    ),
    "load": Part(5.5, "embedded", partial(load, seconds=300)),
    "frameworks": Part(
        1.5,
        "expanded",
        partial(
            frameworks,
            pair="expanded",
            methods=FRAMEWORKS,
            prompt_set="heldout",
            tokens=48,
            rounds=1,
        ),
    ),
    "llama-cpp": Part(
        2,
        "gguf",
        partial(
            frameworks,
            pair="chat",
            methods=LLAMA_CPP,
            prompt_set="tasks",
            tokens=64,
            rounds=1,
        ),
    ),
}
"""By name, those first that most is said about: where time is short, the last ones go."""
