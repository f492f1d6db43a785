"""Reads an answer as it streams: reasoning, text and calls."""

import json
import re
from collections.abc import Callable, Generator, Iterable, Mapping
from functools import partial
from typing import Any

from ov_specdec.options.schemas import types_of
from ov_specdec.options.structured import argument_of, definition_of, parameters_of
from ov_specdec.results.parts import Arguments, CallBegin, CallEnd, Part, Reasoning, Text
from ov_specdec.text.answer_format import SPECIAL, AnswerFormat, CallFormat, ParameterFormat

NAME = "[A-Za-z0-9_.:/-]"

SPACE = r"\s*(?=\S)"

NEVER = "\udfff"
"""No text contains it."""

Reading = Generator[None, None, Any]
"""Reads a part of the answer. Yields where it needs more text, unless that has ended."""


class AnswerParser:
    """Turns the text of one answer into parts, which are the same however the text is cut.

    form: of the model's answers. tools: by their schemas, strings are told from other arguments.
    is_reasoning: see `ReasoningFormat.is_open`.
    """

    def __init__(
        self, form: AnswerFormat, tools: Iterable[Mapping[str, Any]], is_reasoning: bool | None
    ) -> None:
        self._form = form
        self._tools = {definition_of(tool)["name"]: tool for tool in tools}
        self._names = {token: SPECIAL + name for name, token in form.tokens.items()}
        self._held = ""  # not read yet
        self._has_ended = self._is_cut = False
        self._parts: list[Part] = []
        self._reading = self._answer(is_reasoning)

    def push(self, text: str, token: int | None = None) -> list[Part]:
        """Add a text. Returns the parts that it completes.

        token: whose text it is; one of the format is told from a text that spells its name.
        """
        name = "" if token is None else self._names.get(token, "")
        # Before the name may be what this token shows to be no character.
        self._held += text.removesuffix(name[1:]) + name
        return self._read()

    def end(self, *, is_cut: bool = False) -> list[Part]:
        """The rest, once the answer has ended.

        is_cut: not by itself; the beginning of a marker is then left out. A cut call has no end.
        """
        self._has_ended, self._is_cut = True, is_cut
        return self._read()

    def _read(self) -> list[Part]:
        next(self._reading, None)
        parts, self._parts = self._parts, []
        return parts

    def _put(self, kind: Callable[[str], Part], text: str) -> None:
        if text := text.replace(SPECIAL, ""):
            self._parts.append(kind(text))

    def _answer(self, is_reasoning: bool | None) -> Reading:
        reasoning, calls = self._form.reasoning, self._form.calls
        put_text = partial(self._put, Text)
        if reasoning and is_reasoning is not None:
            if is_reasoning or (yield from self._begins(reasoning.begin, skips=True)):
                yield from self._match(SPACE)
                yield from self._until(reasoning.end, partial(self._put, Reasoning))
                yield from self._match(SPACE)
        if calls and calls.is_whole_answer:
            if (yield from self._begins(calls.marker, skips=True)):
                yield from self._calls(calls)
        elif calls:
            while (yield from self._until(calls.marker, put_text)):
                yield from self._calls(calls)
                yield from self._match(SPACE)
        yield from self._until(NEVER, put_text, trims=False)

    def _begins(self, text: str, *, skips: bool = False) -> Reading:
        """Whether this comes next, then without it. skips: after white space too."""
        text = self._form.marked(text)
        while text.startswith(held := self._held.lstrip() if skips else self._held):
            if held == text or self._has_ended:
                break
            yield
        if found := held.startswith(text):
            self._held = held.removeprefix(text)
        elif self._is_cut and text.startswith(held):
            self._held = ""
        return found

    def _until(self, text: str, put: Callable[[str], object], *, trims: bool = True) -> Reading:
        """Whether this comes; what is before it is put. trims: without white space at the end."""
        text = self._form.marked(text)
        while text not in self._held:
            sizes = range(min(len(self._held), len(text) - 1), 0, -1)
            begun = next((size for size in sizes if text.startswith(self._held[-size:])), 0)
            is_text = self._has_ended and not self._is_cut
            shown = self._held if is_text else self._held[: len(self._held) - begun]
            if trims and not self._has_ended:
                shown = shown.rstrip()
            put(shown)
            self._held = "" if self._has_ended else self._held[len(shown) :]
            if self._has_ended:
                return False
            yield
        before, _, self._held = self._held.partition(text)
        put(before.rstrip() if trims else before)
        return True

    def _match(self, pattern: str) -> Reading:
        """The match of a pattern that comes next; None if it is cut."""
        while not (found := re.match(pattern, self._held, re.DOTALL)):
            if self._has_ended:
                self._held = ""
                return None
            yield
        self._held = self._held[found.end() :]
        return found

    def _calls(self, calls: CallFormat) -> Reading:
        """The calls after their marker, up to what closes them."""
        pattern, first = self._form.pattern, calls.opening + calls.before
        name = f"(?P<name>{NAME}{{1,128}})" + (pattern(calls.middle) or f"(?!{NAME})(?=.)")
        head = pattern(first.removeprefix(calls.marker)) + name
        while (found := (yield from self._match(head))) and found["name"]:
            self._parts.append(CallBegin(found["name"], found.groupdict().get("id", "")))
            if calls.parameters:
                tool = self._tools.get(found["name"], {})
                is_whole = yield from self._arguments(calls, calls.parameters, parameters_of(tool))
            else:
                is_whole = yield from self._json(calls.after)
            if not is_whole:
                return
            self._parts.append(CallEnd())
            if not calls.is_enclosed:
                return
            more = pattern((calls.separator or "") + calls.before) + name
            head = f"{more}|{pattern(calls.closing)}"

    def _json(self, end: str) -> Reading:
        """Whether an object or list comes, which is put as it is, and then its end."""
        depth, is_text, is_escaped = 0, False, False
        while True:
            size = 0
            for character in self._held:
                size += 1
                if is_text:
                    is_text = is_escaped or character != '"'
                    is_escaped = not is_escaped and character == "\\"
                else:
                    is_text = character == '"'
                    depth += (character in "{[") - (character in "}]")
                if not depth:
                    break
            self._put(Arguments, self._held[:size])
            self._held = self._held[size:]
            if size and not depth:
                return (yield from self._match(self._form.pattern(end)))
            if self._has_ended:
                return False
            yield

    def _arguments(
        self, calls: CallFormat, form: ParameterFormat, schema: Mapping[str, Any]
    ) -> Reading:
        """Whether all arguments come, each by itself, which are put as one object."""
        pattern, separator = self._form.pattern, "{"
        text, other = map(pattern, form.between)
        key = f"{pattern(form.before)}(?P<key>.+?)(?:(?P<is_text>{text})|{other})"
        while found := (yield from self._match(f"{key}|{pattern(calls.after)}")):
            if found["key"] is None:
                self._put(Arguments, "}" if separator == ", " else "{}")
                return True
            self._put(Arguments, f"{separator}{json.dumps(found['key'], ensure_ascii=False)}: ")
            separator = ", "
            types = types_of(argument_of(found["key"], schema), schema)
            is_text = "string" in types if text == other else found["is_text"] is not None
            if is_text and "null" in types and (yield from self._begins(f"null{form.after}")):
                self._put(Arguments, "null")
            elif not (yield from self._value(form.after, is_text)):
                return False
        return False

    def _value(self, end: str, is_text: bool) -> Reading:
        """Whether a value comes, which is put as JSON."""

        def put(text: str) -> None:
            escaped = json.dumps(text.replace(SPECIAL, ""), ensure_ascii=False)[1:-1]
            self._put(Arguments, escaped if is_text else text.lower())  # some write True and False

        if not is_text:
            yield from self._match("(?=.)")
            if self._held[:1] in "{[":
                return (yield from self._json(end))
        self._put(Arguments, '"' * is_text)
        is_whole = yield from self._until(end, put, trims=False)
        self._put(Arguments, '"' * (is_text and is_whole))
        return is_whole
