"""The parts of the figures: what each measures, how long at most, and what it needs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from lab.benchmarks.figures.busy import busy
from lab.benchmarks.figures.given import Given
from lab.benchmarks.figures.passes import passes
from lab.benchmarks.figures.processes import fresh, memory
from lab.benchmarks.figures.requests import again, long_prompts, requests, second_turns
from lab.benchmarks.figures.speech import speech
from lab.benchmarks.figures.structured import MOST, SPACED, structured
from lab.benchmarks.figures.structured import single as schema_by_schema
from lab.benchmarks.figures.texts import texts
from lab.benchmarks.figures.together import together
from lab.benchmarks.figures.tools import own_calls, tools
from lab.benchmarks.measuring import Measurements

PLAIN = ("plain", "plain-again", "default")
HELD_OUT, SIX_TASKS, CODE_CHAT = "held-out code", "six tasks", "code chats"
PROMPTS = {
    HELD_OUT: "the first n of 8 beginnings of code, of 64 tokens, from packages outside the "
    "training data",
    SIX_TASKS: "the first n of 48 prompts of Spec-Bench, in turn of conversation, translation, "
    "summarization, questions, mathematics and questions about a text",
    CODE_CHAT: "the first n of 6 questions about code and of 6 edits of code",
}
"""What captions call prompts."""


def of_lengths(method: str, lengths: Sequence[int]) -> tuple[str, ...]:
    """A method by these draft lengths."""
    return tuple(f"{method}-{n}" for n in lengths)


def sweep(peer: str, lengths: Sequence[int], *, own: bool = True) -> tuple[str, ...]:
    """Default, plain, and the same draft lengths of this project and of openvino.genai."""
    constant = of_lengths("constant", lengths) if own else ()
    return (*PLAIN, *constant, "genai-plain", "genai-plain-again", *of_lengths(peer, lengths))


METHODS = {
    **dict.fromkeys(
        ("embedded", "1b-small-draft", "3b"),
        (*sweep("genai-draft", (3, 5, 7, 10, 15)), "genai-confidence"),
    ),
    **dict.fromkeys(
        ("1b", "1b-int4"), (*sweep("genai-draft", (2, 3, 5, 7, 10)), "genai-confidence")
    ),
    "chat": sweep("genai-prompt-lookup", (1, 2, 3, 5, 9), own=False),
}
LOOKUPS = of_lengths("genai-prompt-lookup", (3, 5, 9))
REAL_DRAFTS = of_lengths("genai-draft", (2, 4, 6, 10))
REAL = (*PLAIN, "suffix", "model", "genai-plain", *REAL_DRAFTS, "genai-confidence", *LOOKUPS)
"""Methods of a real pair, which are slow: openvino.genai's plain decoding is not repeated."""

INT4_DRAFTS = of_lengths("genai-draft", (1, 2, 4))
REAL_INT4 = ("plain", "default", "suffix", "genai-plain", *INT4_DRAFTS, *LOOKUPS)

FEW = ("plain", "default", "genai-plain", "genai-draft-2")
READING = (*FEW, "genai-plain-f16")
"""Where passes read much, f16 caches are faster than openvino.genai's default, u8."""

LOOKUP = ("plain", "default", "genai-plain", "genai-plain-f16", "genai-prompt-lookup-3")
LOADS = {
    "1b": (*sweep("genai-draft", (1, 2, 4), own=False), "default-not-invariant"),
    "chat": (
        *sweep("genai-prompt-lookup", (1, 2, 4), own=False),
        *("default-not-invariant", "genai-plain-f16"),
    ),
}
CASES = (("default", "none"), ("default", (8,)), ("default", "auto"), ("genai-plain", None))
"""Methods and static shapes whose memory is measured."""

HEAVY = {"1b": "1b", "chat": "tasks"}
PEERS = {**HEAVY, "embedded": "embedded"}
"""Pairs by themselves, and the part that knows openvino.genai's best setting."""


@dataclass(frozen=True)
class Part:
    """One part. minutes: most that it takes of a whole run. needs: a pair, or what `has` knows.

    about: prompts and outputs, for the caption.
    """

    minutes: float
    needs: str
    about: str
    measure: Callable[[Given], Measurements]


def single(pair: str, minutes: float, tokens: int, rounds: int) -> Part:
    """Single requests of a pair that drafts with a model."""
    measure = partial(
        requests,
        pair=pair,
        methods=METHODS[pair],
        temperatures=(0.0, 0.8),
        tokens=tokens,
        rounds=rounds,
    )
    return Part(minutes, pair, f"{HELD_OUT}; outputs of {tokens} tokens", measure)


def several(pair: str, minutes: float, rounds: int) -> Part:
    """Several requests of a pair at once."""
    measure = partial(
        together,
        pair=pair,
        methods=LOADS[pair],
        cached=(200, 1500),
        sizes=(4, 8),
        tokens=64,
        rounds=rounds,
    )
    return Part(
        minutes,
        pair,
        f"the last 64 tokens of {HELD_OUT} or {SIX_TASKS}, after cached source code; outputs of 64 "
        "tokens, timed once all have their first",
        measure,
    )


def of_real_pair(pair: str, minutes: float, methods: Sequence[str]) -> Part:
    """Single requests of a real pair, whose tasks are told apart."""
    measure = partial(
        requests,
        pair=pair,
        methods=methods,
        temperatures=(0.0,),
        tokens=128,
        rounds=1,
        ends=True,
        field="form",
    )
    return Part(minutes, pair, f"{CODE_CHAT}; outputs of at most 128 tokens", measure)


def long_texts(
    pair: str, minutes: float, methods: Sequence[str], cached: Sequence[int], rounds: int
) -> Part:
    """Long prompts of a pair, read as a whole."""
    measure = partial(
        long_prompts, pair=pair, methods=methods, cached=cached, tokens=48, rounds=rounds
    )
    about = "a question after source code, all of it read; outputs of 48 tokens"
    return Part(minutes, pair, about, measure)


PARTS: Mapping[str, Part] = {
    "real": of_real_pair("real", 26, REAL),
    "real-int4": of_real_pair("real-int4", 22, REAL_INT4),
    "several-real": Part(
        9,
        "real",
        f"the last 16 tokens of {CODE_CHAT}, after the same cached source code; outputs of 24 "
        "tokens, timed once all have their first; openvino.genai plain and with 2 draft tokens",
        partial(
            together,
            pair="real",
            methods=READING,
            cached=(200, 1500),
            sizes=(4, 8),
            tokens=24,
            rounds=2,
            own=16,
            step=0,
            kv_cache_gb=1.0,
        ),
    ),
    "long-real": long_texts("real", 7, READING, (2000,), rounds=1),
    "longest-real": long_texts("real", 35, READING, (8000,), rounds=1),
    "passes-real": Part(
        3,
        "real",
        "passes of the main model without static shapes, each after another of its kind",
        partial(passes, pairs=("real",), cached=(200,), rounds=4),
    ),
    "structured-real": Part(
        4,
        "real",
        "the first n schemas of each kind, strings of at most 24 characters; compact JSON, but any "
        "whitespace beside openvino.genai, which knows no other; timed with the compilation of a "
        "new schema, to the end",
        partial(
            schema_by_schema,
            pair="real",
            methods=(*FEW, SPACED),
            rounds=2,
            kinds=("8 fields", "one text"),
        ),
    ),
    "tools-real": Part(
        3,
        "real",
        "the first n of 12 turns of agents, each answered by a call that is required, of at most "
        "64 tokens; prompts were read before",
        partial(own_calls, pair="real", tasks=("searches", "shell"), tokens=64),
    ),
    "1b": single("1b", 6, tokens=96, rounds=1),
    "1b-int4": single("1b-int4", 6, tokens=96, rounds=1),
    "3b": single("3b", 6, tokens=96, rounds=1),
    "tasks": Part(
        4,
        "chat",
        f"{SIX_TASKS}; outputs of at most 64 tokens",
        partial(
            requests,
            pair="chat",
            methods=METHODS["chat"],
            temperatures=(0.0,),
            tokens=64,
            rounds=1,
            ends=True,
        ),
    ),
    "embedded": single("embedded", 2, tokens=96, rounds=2),
    "1b-small-draft": single("1b-small-draft", 4, tokens=96, rounds=1),
    "long-chat": long_texts("chat", 4, LOOKUP, (2000, 8000), rounds=2),
    "several-1b": several("1b", 10, rounds=3),
    "several-chat": several("chat", 5, rounds=6),
    "structured": Part(
        10,
        "chat",
        "the first n of 6 schemas of each kind, strings of at most 24 characters; compact JSON, "
        "but any whitespace beside openvino.genai, which knows no other; timed with the "
        f"compilation of a new schema, to the end or {MOST:,} tokens; a server at the usual "
        "priority",
        partial(
            structured,
            pair="chat",
            methods=(*sweep("genai-prompt-lookup", (2, 4, 8, 16, 32), own=False), SPACED),
            rounds=6,
        ),
    ),
    "tools": Part(
        1.5,
        "chat",
        "24 turns of agents, each answered by a call that is required, of at most 160 tokens; "
        "its 6 edits also as recorded, simulated on cost curves",
        partial(tools, tokens=160),
    ),
    "again": Part(
        3,
        "embedded",
        f"{HELD_OUT}, or {SIX_TASKS}; outputs of at most 96 tokens, each prompt answered before; "
        "suffix drafts",
        partial(again, pairs=("chat", "1b"), number=18, tokens=96),
    ),
    "busy": Part(
        3.5,
        "embedded",
        f"{HELD_OUT}, or conversation, questions and mathematics of {SIX_TASKS}; outputs of 64 "
        "tokens; at the usual priority, beside a busy loop on each core",
        partial(busy, pairs=("chat", "1b"), methods=PLAIN, tokens=64),
    ),
    "fresh": Part(
        6.5,
        "embedded",
        f"{HELD_OUT}, or {SIX_TASKS}; outputs of 64 tokens; no cost curve from earlier processes",
        partial(fresh, pairs=PEERS, tokens=64, rounds=3),
    ),
    "memory": Part(
        3,
        "embedded",
        "after ten seconds of decoding one request after the other",
        partial(memory, pairs=HEAVY, cases=CASES, tokens=64),
    ),
    "passes": Part(
        4,
        "embedded",
        "passes of the main model without static shapes, each after another of its kind",
        partial(passes, pairs=("1b", "chat", "embedded"), cached=(200, 1500), rounds=6),
    ),
    "second-turns": Part(
        1,
        "embedded",
        "first turns of 484 tokens of Python, answers of 16, questions of 20",
        partial(second_turns, pairs=("1b", "chat", "embedded"), rounds=8, first=484),
    ),
    "texts": Part(
        4,
        "embedded",
        "8 prompts, outputs of 48 tokens",
        partial(texts, pairs=("embedded", "chat"), number=8, tokens=48),
    ),
    "speech": Part(
        1, "speech", "all recordings that were given, as one", partial(speech, rounds=6)
    ),
}
"""By name, those first that most is said about: where time is short, the last ones go."""
