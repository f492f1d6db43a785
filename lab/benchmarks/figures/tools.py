"""Calls of tools: with drafts and without, and edits with escaped copies."""

import json
from collections.abc import Collection, Sequence
from functools import partial
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


def tools(given: Given, tokens: int) -> Measurements:
    """Replayed edits; then all turns with a chat model. tokens: most of an output."""
    models = given.pairs["chat"]
    yield from replayed(load_tokenizer(models.main, TEMPLATE))
    with models.pipeline(chat_template=TEMPLATE) as pipeline:
        pipeline.prepare()
        yield from calls(pipeline, turns(), tokens, cache_prompt=False)


def own_calls(given: Given, pair: str, tasks: Collection[str], tokens: int) -> Measurements:
    """Turns of some tasks with a model that was trained to call tools, on prompts that are kept."""
    with given.pairs[pair].pipeline() as pipeline:
        pipeline.prepare()
        asked = [turn for turn in turns() if turn["task"] in tasks]
        yield from calls(pipeline, asked, tokens, cache_prompt=True)


def calls(
    pipeline: SpeculativePipeline, asked: Sequence[Row], tokens: int, *, cache_prompt: bool
) -> Measurements:
    """Turns, each after an untimed token where prompts are kept, else after that of the first.

    Where they are kept the default comes first, as it would draft what the others had as output.
    """
    for number, turn in enumerate(asked):
        call = partial(called, pipeline, turn, cache_prompt=cache_prompt)
        if cache_prompt or not number:
            call("auto", 1)
        for method in sorted(LENGTHS) if cache_prompt else in_turns(tuple(LENGTHS), number):
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
