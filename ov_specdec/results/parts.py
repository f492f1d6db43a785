"""The parts of an answer: reasoning, text, and calls of tools."""

from dataclasses import dataclass


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
    """A call begins. The parts up to the next `CallEnd` are its arguments."""

    name: str


@dataclass(frozen=True)
class Arguments:
    """A piece of the arguments: the pieces of a call join to a JSON object."""

    text: str


@dataclass(frozen=True)
class CallEnd:
    """A call is complete, which one that the maximum length cuts never is."""


Part = Text | Reasoning | CallBegin | Arguments | CallEnd


@dataclass(frozen=True)
class ToolCall:
    """A whole call of a tool. arguments: the text of a JSON object."""

    name: str
    arguments: str
