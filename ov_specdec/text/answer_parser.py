"""Reads an answer as it streams: reasoning, text and calls."""

import json
import re
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from ov_specdec.options.tools import definition_of
from ov_specdec.results.parts import Arguments, CallBegin, CallEnd, Part, Reasoning, Text
from ov_specdec.text.answer_format import SPECIAL, AnswerFormat, CallFormat, ParameterFormat
from ov_specdec.text.tool_schema import parameters_of, types_of

NAME = "[A-Za-z0-9_.:/-]"

NEVER = "\udfff"
"""No text contains it."""

WORDS = {"True": "true", "False": "false", "None": "null"}
"""How some templates write values that JSON writes in small letters."""

Steps = Generator[None, None, Any]
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
        self._schemas = {definition_of(tool).get("name"): parameters_of(tool) for tool in tools}
        self._names = {token: SPECIAL + name for name, token in form.tokens.items()}
        self._held = ""  # not read yet
        self._has_ended = False
        self._parts: list[Part] = []
        self._steps = self._answer(is_reasoning)

    def push(self, text: str, token_ids: Sequence[int]) -> list[Part]:
        """Add the text of tokens. Returns the parts that it completes.

        A token of the format comes alone: it is told from a text that spells its name.
        """
        self._held += self._names.get(token_ids[0], text) if len(token_ids) == 1 else text
        return self._read()

    def end(self) -> list[Part]:
        """The rest, once the answer has ended. A call that is cut has no end."""
        self._has_ended = True
        return self._read()

    def _read(self) -> list[Part]:
        next(self._steps, None)
        parts, self._parts = self._parts, []
        return parts

    def _put(self, kind: Callable[[str], Part], text: str) -> None:
        if text := text.replace(SPECIAL, ""):
            self._parts.append(kind(text))

    def _answer(self, is_reasoning: bool | None) -> Steps:
        reasoning, calls = self._form.reasoning, self._form.calls
        reasoning = None if is_reasoning is None else reasoning
        put_text = partial(self._put, Text)
        if reasoning and (is_reasoning or (yield from self._begins(reasoning.begin, skips=True))):
            yield from self._space()
            yield from self._until(reasoning.end, partial(self._put, Reasoning))
            yield from self._space()
        if calls and calls.is_whole_answer:
            if (yield from self._begins(calls.marker, skips=True)):
                yield from self._calls(calls)
        elif calls:
            while (yield from self._until(calls.marker, put_text)):
                yield from self._calls(calls)
                yield from self._space()
        yield from self._until(NEVER, put_text)

    def _begins(self, text: str, *, skips: bool = False) -> Steps:
        """Whether this comes next, then without it. skips: after white space too."""
        text = self._form.marked(text)
        while True:
            held = self._held.lstrip() if skips else self._held
            if held.startswith(text):
                self._held = held.removeprefix(text)
                return True
            if not text.startswith(held) or self._has_ended:
                return False
            yield

    def _space(self) -> Steps:
        """Leave out white space."""
        while not (held := self._held.lstrip()) and not self._has_ended:
            yield
        self._held = held

    def _until(self, text: str, put: Callable[[str], object], *, trims: bool = True) -> Steps:
        """Whether this comes; what is before it is put. trims: without white space at the end."""
        text = self._form.marked(text)
        while text not in self._held:
            sizes = range(min(len(self._held), len(text) - 1), 0, -1)
            begun = next((size for size in sizes if text.startswith(self._held[-size:])), 0)
            shown = self._held[: len(self._held) - begun]
            if trims:
                shown = self._held if self._has_ended else shown.rstrip()
            put(shown)
            self._held = self._held[len(shown) :]
            if self._has_ended:
                self._held = ""
                return False
            yield
        before, _, self._held = self._held.partition(text)
        put(before.rstrip() if trims else before)
        return True

    def _match(self, pattern: str) -> Steps:
        """The match of a pattern that comes next; None if it is cut."""
        while not (found := re.match(pattern, self._held, re.DOTALL)):
            if self._has_ended:
                self._held = ""
                return None
            yield
        self._held = self._held[found.end() :]
        return found

    def _calls(self, calls: CallFormat) -> Steps:
        """The calls after their marker, up to what closes them."""
        pattern, first = self._form.pattern, calls.opening + calls.before
        name = f"(?P<name>{NAME}{{1,128}})" + (pattern(calls.middle) or f"(?!{NAME})(?=.)")
        head = pattern(first.removeprefix(calls.marker)) + name
        while (found := (yield from self._match(head))) and found["name"]:
            self._parts.append(CallBegin(found["name"], found.groupdict().get("id", "")))
            if calls.parameters is None:
                is_whole = (yield from self._json()) and (
                    yield from self._match(pattern(calls.after))
                )
            else:
                schema = self._schemas.get(found["name"], {})
                is_whole = yield from self._arguments(calls.after, calls.parameters, schema)
            if not is_whole:
                return
            self._parts.append(CallEnd())
            if not calls.is_enclosed:
                return
            head = f"{pattern(calls.separator or '') + pattern(calls.before) + name}|"
            head += pattern(calls.closing)

    def _json(self) -> Steps:
        """Whether an object or list comes, which is put as it is."""
        depth, is_text, is_escaped = 0, False, False
        while True:
            for place, character in enumerate(self._held):
                if is_text:
                    is_text = is_escaped or character != '"'
                    is_escaped = not is_escaped and character == "\\"
                else:
                    is_text = character == '"'
                    depth += (character in "{[") - (character in "}]")
                if not depth:
                    self._put(Arguments, self._held[: place + 1])
                    self._held = self._held[place + 1 :]
                    return True
            self._put(Arguments, self._held)
            self._held = ""
            if self._has_ended:
                return False
            yield

    def _arguments(self, end: str, form: ParameterFormat, schema: Mapping[str, Any]) -> Steps:
        """Whether all arguments come, each by itself, which are put as one object."""
        pattern = self._form.pattern
        between = rf"(?:(?P<is_text>{pattern(form.between[0])})|{pattern(form.between[1])})"
        before, separator = pattern(form.before), "{"
        while found := (yield from self._match(f"{before}(?P<key>.+?){between}|{pattern(end)}")):
            if (key := found["key"]) is None:
                self._put(Arguments, "}" if separator == ", " else "{}")
                return True
            self._put(Arguments, f"{separator}{json.dumps(key, ensure_ascii=False)}: ")
            separator = ", "
            types = types_of(schema.get("properties", {}).get(key, {}), schema)
            is_text = "string" in types
            if form.between[0] != form.between[1]:
                is_text = found["is_text"] is not None
            if not (yield from self._value(form.after, is_text, "null" in types)):
                return False
        return False

    def _value(self, end: str, is_text: bool, may_be_null: bool) -> Steps:
        """Whether a value comes, which is put as JSON."""
        for word in ("null", "None") if is_text and may_be_null else ():
            if (yield from self._begins(word + end)):
                self._put(Arguments, "null")
                return True
        if is_text:
            self._put(Arguments, '"')
            if is_whole := (yield from self._until(end, self._put_escaped, trims=False)):
                self._put(Arguments, '"')
            return is_whole
        while not self._held and not self._has_ended:
            yield
        if self._held[:1] in "{[":
            return (yield from self._json()) and (yield from self._match(self._form.pattern(end)))
        if found := (yield from self._match(f"(?P<word>.*?){self._form.pattern(end)}")):
            self._put(Arguments, WORDS.get(found["word"], found["word"]))
        return found

    def _put_escaped(self, text: str) -> None:
        """Put a piece of a text within a string of JSON."""
        self._put(Arguments, json.dumps(text.replace(SPECIAL, ""), ensure_ascii=False)[1:-1])
