"""Calls of tools: with drafts and without, edits with escaped copies, first tokens, and loops."""

import json
from collections.abc import Collection, Sequence
from functools import partial
from time import perf_counter
from typing import Any

from lab.benchmarks.figures.given import Given
from lab.benchmarks.figures.requests import LENGTHS, compact, timed
from lab.benchmarks.machines import MACHINES
from lab.benchmarks.measuring import Measurements, in_turns
from lab.benchmarks.record import Key, Row
from lab.benchmarks.replay import run, total
from lab.benchmarks.texts import FILES
from ov_specdec import GenerationOptions, SpeculativePipeline
from ov_specdec.text.prompt import escaped_copy
from ov_specdec.text.tokenizer import Tokenizer, load_tokenizer

TEMPLATE = FILES["agent_turns"].with_name("tools.jinja")
"""For chat models that have been trained without tools: any can be forced to call one."""

CURVES = ("avx512 1B 100M", "vnni 1B 100M", "avx512 SmolLM2")
EDITS = {"plain": ("suffix", 0), "default": ("escaped", None), "without-copies": ("suffix", None)}
"""Drafters and lengths that edits are replayed with."""

MANY, LOOP = 200, 20
"""Tools of a prompt with many, and turns of a loop."""


def tool(name: str, *parameters: str, most: int | None = None) -> dict[str, Any]:
    """A function whose parameters are texts, of so many characters at most."""
    text = {"type": "string", **({"maxLength": most} if most else {})}
    properties = dict.fromkeys(parameters, text)
    schema: dict[str, Any] = {"type": "object", "properties": properties, "required": [*parameters]}
    schema["additionalProperties"] = False
    return {"type": "function", "function": {"name": name, "parameters": schema}}


def agents_tools(most: int | None = None) -> list[dict[str, Any]]:
    """The tools of the turns."""
    return [
        tool("read_file", "path", most=most),
        tool("edit_file", "path", "old", "new", most=most),
        tool("search", "pattern", "path", most=most),
        tool("shell", "command", most=most),
    ]


def turns() -> list[Row]:
    """The turns: messages, and the calls that answer them."""
    return [json.loads(line) for line in FILES["agent_turns"].read_text("utf-8").splitlines()]


def tools(given: Given, tokens: int, rounds: int) -> Measurements:
    """Replayed edits; then all turns, prompts with many tools, and a loop, with a chat model.

    tokens: most of an output. rounds: of the prompts with many tools.
    """
    models = given.pairs["chat"]
    yield from replayed(load_tokenizer(models.main, TEMPLATE))
    with models.pipeline(chat_template=TEMPLATE) as pipeline:
        pipeline.prepare()
        yield from calls(pipeline, turns(), tokens, cache_prompt=False)
        for number in range(rounds):
            key: Key = {"turn": number, "prompt": number, "form": "many tools"}
            yield key, partial(first_token, pipeline, number)
        loop = Loop(pipeline)
        for number in range(2, LOOP + 1):
            yield {"turn": number, "prompt": number, "form": "loop"}, loop.turn


def own_calls(given: Given, pair: str, tasks: Collection[str], tokens: int) -> Measurements:
    """Turns of some tasks with a model that was trained to call tools, on prompts that are kept."""
    with given.pairs[pair].pipeline() as pipeline:
        pipeline.prepare()
        asked = [turn for turn in turns() if turn["task"] in tasks]
        yield from calls(pipeline, asked, tokens, cache_prompt=True)


def calls(
    pipeline: SpeculativePipeline, asked: Sequence[Row], tokens: int, *, cache_prompt: bool
) -> Measurements:
    """Turns, each after an untimed token where prompts are kept, else after that of the first."""
    for number, turn in enumerate(asked):
        call = partial(called, pipeline, turn, cache_prompt=cache_prompt)
        if cache_prompt or not number:
            call("auto", 1)
        for method in in_turns(tuple(LENGTHS), number):
            key: Key = {"turn": number, "prompt": number, "task": turn["task"]}
            measure = partial(call, LENGTHS[method], tokens)
            yield {**key, "form": "calls", "method": method}, measure


def replayed(tokenizer: Tokenizer) -> Measurements:
    """Edits on the cost curves of machines, with escaped copies of what was read and without."""
    edits = [recorded(tokenizer, turn) for turn in turns() if turn["task"] == "edits"]
    for machine in CURVES:
        for method, (drafter, length) in EDITS.items():
            found = run(edits, drafter, MACHINES[machine], length)
            for number, (edit, times) in enumerate(zip(edits, found, strict=True)):
                size = len(edit["output"])
                row = {"speed": 1000 * size / total([times]), "passes": len(times), "tokens": size}
                key: Key = {"turn": number, "prompt": number, "form": machine, "method": method}
                yield key, partial(compact, row)


def recorded(tokenizer: Tokenizer, turn: Row) -> Row:
    """The ids of a turn: its prompt, the calls that answer it, and the escaped copy."""
    options = GenerationOptions(tools=agents_tools())
    prompt = tokenizer.render_chat(turn["messages"], options)
    calls = [{"type": "function", "function": call} for call in turn["calls"]]
    messages = [*turn["messages"], {"role": "assistant", "content": "", "tool_calls": calls}]
    whole = tokenizer.render_chat(messages, options.copy_with(add_generation_prompt=False))
    ids = tokenizer.encode_rendered(prompt).ids
    output = tokenizer.encode_rendered(whole.removeprefix(prompt)).ids
    return {"prompt": ids, "output": output, "escaped": escaped_copy(ids, tokenizer)}


def called(
    pipeline: SpeculativePipeline, turn: Row, length: int | str, tokens: int, *, cache_prompt: bool
) -> Row:
    """The call that a model is made to answer a turn with."""
    options: dict[str, Any] = {"tools": agents_tools(), "tool_choice": "required"}
    options |= {"max_new_tokens": tokens, "num_assistant_tokens": length}
    options["cache_prompt"] = cache_prompt
    return timed(partial(pipeline.generate, turn["messages"], **options))


def first_token(pipeline: SpeculativePipeline, number: int) -> Row:
    """Seconds to the first token of a cached prompt with many tools, and without their grammar."""
    names = [tool(f"tool_{number}_{n}", "text") for n in range(MANY)]
    messages = [{"role": "user", "content": "Call one."}]

    def bare() -> None:
        text = pipeline.tokenizer.render_chat(messages, GenerationOptions(tools=names))
        ids = pipeline.tokenizer.encode_rendered(text).ids
        pipeline.generate(ids, max_new_tokens=1)

    def bound() -> None:
        pipeline.generate(messages, max_new_tokens=1, tools=names, tool_choice="required")

    bare()  # reads the prompt
    times = []
    for generate in (bare, bound):
        start = perf_counter()
        generate()
        times.append(perf_counter() - start)
    return compact(dict(zip(("bare", "bound"), times, strict=True)))


class Loop:
    """An agent whose model is made to call a tool in each turn."""

    def __init__(self, pipeline: SpeculativePipeline) -> None:
        self._pipeline, self._known = pipeline, 0
        self._messages: list[Any] = [{"role": "user", "content": "Look around."}]
        self.turn()

    def turn(self) -> Row:
        """One turn: prompt tokens that were cached, and those that an earlier turn has seen."""
        options: dict[str, Any] = {"tools": agents_tools(most=40), "tool_choice": "required"}
        result = self._pipeline.generate(
            self._messages, **options, max_new_tokens=256, cache_salt="loop"
        )
        row = {"cached": result.stats.cached_tokens, "known": self._known}
        self._known = result.stats.prompt_tokens + len(result.token_ids)
        self._messages += [result.message, {"role": "tool", "content": "Nothing there."}]
        return row
