"""The parts of an answer: reasoning, text, and calls of tools."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any


@dataclass(frozen=True)
class Text:
    """A piece of the content."""

    text: str


@dataclass(frozen=True)
class Reasoning:
    """A piece of the reasoning, without its markers."""

    text: str


@dataclass(frozen=True)
class CallBegin:
    """A call begins. The parts up to the next `CallEnd` are its arguments.

    id: what the model wrote, if its format has ids before the arguments.
    """

    name: str
    id: str = ""


@dataclass(frozen=True)
class Arguments:
    """A piece of the arguments: the pieces of a call join to a JSON object."""

    text: str


@dataclass(frozen=True)
class CallEnd:
    """A call is complete, which one that is cut never is."""


Part = Text | Reasoning | CallBegin | Arguments | CallEnd


@dataclass(frozen=True)
class ToolCall:
    """A call of a tool. arguments: the text of a JSON object. id: see `CallBegin`.

    is_whole: False for one that is cut, as by the maximum length.
    """

    name: str
    arguments: str
    id: str = ""
    is_whole: bool = True

    def as_message(self, call_id: str) -> dict[str, Any]:
        """As messages hold it. call_id: if it has none, for the message with its result too."""
        function = {"name": self.name, "arguments": json.loads(self.arguments)}
        return {"id": self.id or call_id, "type": "function", "function": function}


def joined(parts: Iterable[Part]) -> Iterator[Part]:
    """The parts, with neighbours of one kind as one."""
    for kind, group in groupby(parts, type):
        if kind in (CallBegin, CallEnd):
            yield from group
        else:
            yield kind("".join(part.text for part in group))  # type: ignore[union-attr]


def reasoning_of(parts: Iterable[Part]) -> str:
    """The whole reasoning."""
    return "".join(part.text for part in parts if isinstance(part, Reasoning))


def calls_of(parts: Iterable[Part]) -> list[ToolCall]:
    """The calls, of which the last may be cut."""
    calls = list[ToolCall]()
    for part in joined(parts):
        match part:
            case CallBegin(name, call_id):
                calls.append(ToolCall(name, "", call_id, is_whole=False))
            case Arguments(text):
                calls[-1] = replace(calls[-1], arguments=text)
            case CallEnd():
                calls[-1] = replace(calls[-1], is_whole=True)
    return calls
