"""Reads how answers are written from a chat template: renders known calls, and parses them."""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain, product
from os.path import commonprefix
from typing import Any, Protocol

from ov_specdec.errors import OptionError
from ov_specdec.options.generation import GenerationOptions
from ov_specdec.results.parts import calls_of, reasoning_of
from ov_specdec.text.answer_format import (
    CALL_FORMATS,
    ID,
    INDEX,
    REASONING_FORMATS,
    AnswerFormat,
    CallFormat,
    ParameterFormat,
    ReasoningFormat,
)
from ov_specdec.text.answer_parser import AnswerParser

USER, SAID, THOUGHT = "question7", "answer7", "thought7"
NAMES, IDS = ("first_probe", "second_probe"), ("aB3dE5gH7", "kL4nP6rS8")
KEYS = {
    **{"text_key": "string", "other_key": "string", "number_key": "integer"},
    **{"truth_key": "boolean", "object_key": "object", "list_key": "array"},
}
TEXTS = [{"text_key": f"a{n}text7", "other_key": f"b{n}text7"} for n in (3, 4)]
"""Arguments that are easy to find."""

HARD: list[dict[str, Any]] = [
    {
        **{"text_key": ' say "hi"\n\tto <b>\u00e9\u2028\U0001f600</b> {\\n\n', "other_key": ""},
        **{"number_key": -7, "truth_key": False, "list_key": ["\u00e9", "'e'", []]},
        **{"object_key": {"a": [1.5, {"b": 'c"\n'}], "d": None}},
    },
    {"text_key": "True", "truth_key": True},
]
"""Arguments that are easy to get wrong."""

OTHERS = (True, 731, None, {"a": [731]}, [731, "a"])
"""Arguments that are not texts."""

SEPARATORS = ((", ", ": "), (",", ":"))
"""Of items and keys in JSON."""

PIECE = re.compile(r"<[^<>]*>|\[[A-Z_ /]+\]|.", re.DOTALL)
"""What is either the same in two texts or differs as a whole."""

MARKS = (("<think>", "</think>"), ("[THINK]", "[/THINK]"))
"""Of reasoning, in templates that leave it out."""


class Template(Protocol):
    """Renders chats. See `Tokenizer`."""

    @property
    def spec(self) -> dict[str, Any]: ...
    @property
    def chat_template(self) -> str | None: ...
    def render_chat(self, messages: Sequence[Any], options: GenerationOptions) -> str: ...


class UnreadableError(ValueError):
    """Why a format cannot be used."""


def read_format(
    template: Template, tool_call_parser: str = "auto", reasoning_parser: str = "auto"
) -> AnswerFormat:
    """How answers are written: by a known name, or as the chat template writes them."""
    reader = _Reader(template)
    reasoning = REASONING_FORMATS.get(reasoning_parser)
    if reasoning_parser == "auto":
        reasoning = reader.reasoning()
    form = AnswerFormat(CALL_FORMATS.get(tool_call_parser), reasoning)
    if tool_call_parser == "auto":
        try:
            form = reader.prove(form, reader.calls())
        except UnreadableError as error:
            form = replace(form, reason=f"its chat template {error}")
    texts = "".join(form.texts())
    # Other added tokens are text to llguidance.
    added = [
        t for t in template.spec.get("added_tokens", ()) if t["special"] or _is_tag(t["content"])
    ]
    return replace(form, tokens={t["content"]: t["id"] for t in added if t["content"] in texts})


class _Reader:
    """Renders answers to one question with a template."""

    def __init__(self, template: Template) -> None:
        self._template = template
        properties = {key: {"type": name, "description": key} for key, name in KEYS.items()}
        schema = {"type": "object", "properties": properties, "required": ["text_key"]}
        given = [{"name": name, "description": name, "parameters": schema} for name in NAMES]
        tools = [{"type": "function", "function": function} for function in given]
        self.tools = tools if "tools" in (template.chat_template or "") else []

    def render(self, content: str | None, arguments: Sequence[Any] = (), thought: str = "") -> str:
        """What follows the question. content: None for what begins an answer."""
        calls = [
            {"id": number, "type": "function", "function": {"name": name, "arguments": given}}
            for number, name, given in zip(IDS, NAMES, arguments, strict=False)
        ]
        answer: dict[str, Any] = {"role": "assistant", "content": content}
        answer |= {"tool_calls": calls} if calls else {}
        answer |= dict.fromkeys(("reasoning", "reasoning_content"), thought) if thought else {}
        messages = [{"role": "user", "content": USER}, *([answer] if content is not None else [])]
        options = GenerationOptions(tools=self.tools, add_generation_prompt=content is None)
        try:
            return self._template.render_chat(messages, options).rpartition(USER)[2]
        except OptionError as error:
            raise UnreadableError(f"cannot render calls ({error.__cause__ or error})") from error

    def reasoning(self) -> ReasoningFormat | None:
        """The markers of reasoning, if the template has any."""
        try:
            prompt, plain = self.render(None), self.render(SAID)
            text = self.render(SAID, thought=THOUGHT)
        except UnreadableError:
            return None
        before, found, rest = text.partition(THOUGHT)
        if not found:
            named = self._template.chat_template or ""
            return next((ReasoningFormat(*m) for m in MARKS if all(t in named for t in m)), None)
        between = _pieces(rest.partition(SAID)[0].strip())
        begin, end = _pieces(before.rstrip())[-1], between[0] if between else ""
        if begin in plain and end not in plain:  # it begins all answers
            begin = prompt.removeprefix(_shared(prompt, text)).strip()
        if not begin or not end or any(len(p) == 1 and not p.isspace() for p in between):
            return None
        return ReasoningFormat(begin, end)

    def calls(self) -> CallFormat:
        """How calls are written, without white space before them."""
        if not self.tools:
            raise UnreadableError("does not name tools")
        plain = self.render(SAID)
        for count in (2, 1):
            try:
                text = _middle(self.render("", TEXTS[:count]), plain)
            except UnreadableError:
                if count == 1:
                    raise
                continue
            if found := self._objects(text, count) or self._parameters(text, count):
                return found
        raise UnreadableError("does not write the names and arguments of calls")

    def _objects(self, text: str, count: int) -> CallFormat | None:
        """The format of calls whose arguments are one JSON object."""
        for separators in SEPARATORS:
            objects = [json.dumps(given, separators=separators) for given in TEXTS]
            known = [each for pair in zip(NAMES, objects, strict=True) for each in pair]
            if texts := _cut(text, known[: 2 * count], 2):
                form = _around(texts[0], texts[2:-1], texts[-1])
                return replace(form, middle=texts[1], separators=separators)
        return None

    def _parameters(self, text: str, count: int) -> CallFormat | None:
        """The format of calls with each argument by itself."""
        known = [
            each
            for name, given in zip(NAMES, TEXTS, strict=True)
            for each in (name, *chain.from_iterable(given.items()))
        ]
        if not (texts := _cut(text, known[: 5 * count], 5)):
            return None
        first, middle, between, more, _, *others, last = texts
        after = _shared(more, last)
        before = more.removeprefix(after)
        form = _around(
            first, [text.removeprefix(after) for text in others], last.removeprefix(after)
        )
        values = [self._value(value, after + before) for value in OTHERS]
        if not middle.endswith(before) or len({around for around, _ in values}) > 1:
            raise UnreadableError("writes arguments in more than two ways")
        words = ("true", "false") if values[0][1] == "true" else ("True", "False")
        parameters = ParameterFormat(before, (between, values[0][0]), after, words)
        return replace(form, middle=middle.removesuffix(before), parameters=parameters)

    def _value(self, value: object, end: str) -> tuple[str, str]:
        """What is between a key and a value that is no text, and how that is written."""
        (key, _), (other, last) = TEXTS[0].items()
        text = (
            self.render("", [{key: value, other: last}]).partition(key)[2].partition(end + other)[0]
        )
        for written in (json.dumps(value), str(value)):
            if text.endswith(written) and (written[0] != "{" or "'" not in written):
                return text.removesuffix(written), written
        raise UnreadableError("does not write objects as JSON")

    def prove(self, form: AnswerFormat, calls: CallFormat) -> AnswerFormat:
        """A format with white space before calls, if it reads what the template writes."""
        form, prompt, plain = replace(form, calls=calls), self.render(None), self.render(SAID)
        given = HARD[: 1 if calls.separator is None else 2]
        for thought in ("", THOUGHT) if form.reasoning else ("",):
            text = self.render("", given, thought)
            begin = _shared(prompt, text)
            answer = text.removeprefix(begin).removesuffix(_shared_end(text, plain))
            is_open = form.reasoning is not None and form.reasoning.is_open(begin)
            parser = AnswerParser(form, self.tools, is_open)
            parts = [*parser.push(answer, ()), *parser.end()]
            found = [(call.name, call.arguments) for call in calls_of(parts)]
            if not _are_equal(found, given) or reasoning_of(parts) not in ("", thought):
                raise UnreadableError("writes calls that cannot be read back")
            before = answer.partition(calls.marker)[0]
            if form.reasoning and thought and thought in before:
                gap = before.rpartition(form.reasoning.end)[2]
                form = replace(form, reasoning=replace(form.reasoning, gap=gap))
            elif before.isspace():
                form = replace(form, calls=replace(calls, gap=before))
        return form


def _are_equal(found: Sequence[tuple[str, str]], given: Sequence[Any]) -> bool:
    """Whether calls are those that were given."""
    try:
        read = [(name, json.loads(arguments)) for name, arguments in found]
    except ValueError:
        return False
    return read == [*zip(NAMES, given, strict=False)]


def _is_tag(text: str) -> bool:
    return text.startswith("<") and text.endswith(">")


def _pieces(text: str) -> list[str]:
    return PIECE.findall(text)


def _shared(first: str, second: str) -> str:
    """The pieces with which both begin."""
    return "".join(commonprefix([_pieces(first), _pieces(second)]))


def _shared_end(first: str, second: str) -> str:
    """The pieces with which both end."""
    return "".join(commonprefix([_pieces(first)[::-1], _pieces(second)[::-1]])[::-1])


def _middle(text: str, plain: str) -> str:
    """What an answer with calls has beyond one without; `UnreadableError` if it comes after its end."""
    text = text.removeprefix(_shared(text, plain))
    text = text.removesuffix(_shared_end(text, plain)).lstrip()
    end = _pieces(plain.partition(SAID)[2].lstrip())[:1]
    if end and text.startswith(end[0]):
        raise UnreadableError("writes calls after the end of the answer")
    for number in IDS:
        text = text.replace(number, ID)
    return text


def _cut(text: str, known: Iterable[str], size: int) -> list[str] | None:
    """What is around known texts, `size` in a call; None unless each comes once, in this order.

    `INDEX` replaces a call's number, from 0 or 1.
    """
    texts = []
    for each in known:
        before, found, text = text.partition(each)
        if not found:
            return None
        texts.append(before)
    texts.append(text)
    if any(name in each for each in texts for name in NAMES):
        return None
    for place, first in product((0, 1), (0, 1) if len(texts) > 2 * size else ()):
        places = (place, place + size)
        counted = [
            re.subn(rf"(?<!\w){first + number}(?!\w)", INDEX, texts[each])
            for number, each in enumerate(places)
        ]
        if all(times == 1 for _, times in counted):
            texts[places[0]], texts[places[1]] = (each for each, _ in counted)
    return texts


def _around(first: str, others: Sequence[str], last: str) -> CallFormat:
    """A format by the texts before the first call, between two, if it has two, and after the last."""
    between = others[0] if others else None
    after = last if between is None else _shared(between, last)
    rest = None if between is None else between.removeprefix(after)
    before = first if rest is None else _shared_end(first, rest).lstrip()
    opening, closing = first.removesuffix(before), last.removeprefix(after)
    separator = None if rest is None else rest.removesuffix(before)
    form = CallFormat(opening, before, "", after, separator, closing if opening else "")
    if not re.match(rf"[<\[{{][^{ID}{INDEX}]*$", form.marker) or bool(opening) != form.is_enclosed:
        raise UnreadableError("does not mark the beginning and the end of calls")
    if not opening and separator and separator.strip():
        raise UnreadableError(f"separates calls by {separator!r}")
    return form
