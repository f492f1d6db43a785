"""Reads the format of answers from a chat template: renders known calls, and parses them."""

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain, takewhile
from typing import Any

from ov_specdec.errors import OptionError
from ov_specdec.options.generation import GenerationOptions
from ov_specdec.options.schemas import type_of
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
from ov_specdec.text.tokenizer import Tokenizer

USER, SAID, THOUGHT = "question7", "answer7", "thought7"
NAMES, IDS = ("first_probe", "second_probe"), ("aB3dE5gH7", "kL4nP6rS8")
EASY = [{"text_key": f"a{n}text7", "other_key": f"b{n}text7"} for n in (3, 4)]
"""Arguments that are easy to find."""

QUOTES = ' say "hi"\n\tto <b>\u00e9\u2028\U0001f600</b> {\\n\n'
HARD: list[dict[str, Any]] = [
    {
        **{"text_key": QUOTES, "other_key": "", "number_key": -7, "truth_key": False},
        **{"list_key": ["'e'", [None]], "object_key": {"a": [1.5, {"b": QUOTES}]}},
    },
    {"text_key": "True", "truth_key": True, "object_key": {}},
]
"""Arguments that are easy to get wrong."""

PROPERTIES = {key: {"type": type_of(value)} for key, value in HARD[0].items()}
SCHEMA = {"type": "object", "properties": PROPERTIES, "required": ["text_key"]}
FUNCTIONS = [{"name": name, "description": name, "parameters": SCHEMA} for name in NAMES]
TOOLS = [{"type": "function", "function": function} for function in FUNCTIONS]

PIECE = re.compile(r"<[^<>]*>|\[[A-Z_ /]+\]|.", re.DOTALL)
"""What two texts have in common only as a whole."""


def read_format(
    tokenizer: Tokenizer, tool_call_parser: str = "auto", reasoning_parser: str = "auto"
) -> AnswerFormat:
    """How answers are written: by a known name, or as the chat template writes them."""
    reasoning, reason = REASONING_FORMATS.get(reasoning_parser), ""
    if reasoning_parser == "auto":
        reasoning = _Reader(tokenizer, []).reasoning()
    form = AnswerFormat(CALL_FORMATS.get(tool_call_parser), reasoning)
    if tool_call_parser == "auto":
        reader = _Reader(tokenizer, TOOLS)
        try:
            form = reader.prove(form, reader.calls())
        except OptionError as error:
            reason = "its chat template does not name tools"
            if error.option != "tools":
                reason = f"its chat template cannot render calls ({error.__cause__ or error})"
        except json.JSONDecodeError:
            reason = "its chat template writes calls that cannot be read back"
        except ValueError as error:
            reason = f"its chat template {error}"
    special = {
        token["content"]: token["id"]
        for token in tokenizer.spec.get("added_tokens", ())
        if token["special"] or re.fullmatch("<.*>", token["content"])  # as to llguidance
    }
    return replace(form, reason=reason, special=special)


class _Reader:
    """Renders answers to one question with a template."""

    def __init__(self, tokenizer: Tokenizer, tools: list[Any]) -> None:
        self._tokenizer, self._tools = tokenizer, tools

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
        options = GenerationOptions(tools=self._tools, add_generation_prompt=content is None)
        return self._tokenizer.render_chat(messages, options).rpartition(USER)[2]

    def reasoning(self) -> ReasoningFormat | None:
        """The markers of reasoning, if the template has any."""
        template = self._tokenizer.chat_template or ""
        left_out = next((form for form in REASONING_FORMATS.values() if form.end in template), None)
        if "reasoning" not in template:  # to render takes half a second, the first time
            return left_out
        try:
            prompt, plain = self.render(None), self.render(SAID)
            text = self.render(SAID, thought=THOUGHT)
        except OptionError:
            return None
        before, found, rest = text.partition(THOUGHT)
        if not found:
            return left_out
        between = PIECE.findall(rest.partition(SAID)[0].strip())
        begin, end = PIECE.findall(before.rstrip())[-1], "".join(between[:1])
        if begin in plain and end not in plain:  # it begins all answers
            begin = prompt.removeprefix(_shared(prompt, text)).strip()
        is_text = any(len(piece) == 1 and not piece.isspace() for piece in between)
        return ReasoningFormat(begin, end) if begin and end and not is_text else None

    def calls(self) -> CallFormat:
        """How calls are written, without white space before them."""
        with suppress(OptionError):  # where an answer has one call at most
            if found := self._calls(2):
                return found
        if found := self._calls(1):
            return found
        raise ValueError("does not write the names and arguments of calls")

    def _calls(self, count: int) -> CallFormat | None:
        """How so many calls are written."""
        plain, text = self.render(SAID), self.render("", EASY[:count])
        text = text.removeprefix(_shared(text, plain)).replace(IDS[0], ID).replace(IDS[1], ID)
        text = text.removesuffix(_shared(text, plain, at_end=True)).lstrip()
        end = PIECE.match(plain.partition(SAID)[2].lstrip())
        if end and text.startswith(end[0]):
            raise ValueError("writes calls after the end of the answer")
        for separators in ((", ", ": "), (",", ":")):
            objects = [json.dumps(given, separators=separators) for given in EASY]
            if texts := _cut(text, [*zip(NAMES, objects, strict=True)][:count]):
                first, middle, *others = texts
                return replace(_around(first, others), middle=middle, separators=separators)
        items = [(name, *chain(*given.items())) for name, given in zip(NAMES, EASY, strict=True)]
        if not (texts := _cut(text, items[:count])):
            return None
        first, middle, of_text, more, _, *others = texts
        after = _shared(more, others[-1])
        before = more.removeprefix(after)
        form = _around(first, [text.removeprefix(after) for text in others])
        [key, other] = EASY[0]
        text = self.render("", [{key: True, other: ""}]).partition(key)[2]
        text = text.partition(more + other)[0]
        words = ("True", "False") if text.endswith("True") else ("true", "false")
        between = of_text, text.removesuffix(words[0])
        parameters = ParameterFormat(before, between, after, words)
        return replace(form, middle=middle.removesuffix(before), parameters=parameters)

    def prove(self, form: AnswerFormat, calls: CallFormat) -> AnswerFormat:
        """A format with white space before calls, if it reads what the template writes."""
        form, prompt, plain = replace(form, calls=calls), self.render(None), self.render(SAID)
        given = HARD[: 1 if calls.separator is None else 2]
        for thought in ("", THOUGHT) if form.reasoning else ("",):
            text = self.render("", given, thought)
            begin = _shared(prompt, text)
            answer = text.removeprefix(begin).removesuffix(_shared(text, plain, at_end=True))
            is_open = form.reasoning.is_open(begin) if form.reasoning else False
            parser = AnswerParser(form, self._tools, is_open)
            parts = [*parser.push(answer), *parser.end()]
            found = [(call.name, json.loads(call.arguments)) for call in calls_of(parts)]
            is_known = reasoning_of(parts) in ("", thought)
            if not is_known or found != [*zip(NAMES, given, strict=False)]:
                raise ValueError("writes calls that cannot be read back")
            before = answer.partition(calls.marker)[0]
            if form.reasoning and thought and thought in before:
                gap = before.rpartition(form.reasoning.end)[2]
                form = replace(form, reasoning=replace(form.reasoning, gap=gap))
            elif before.isspace():
                form = replace(form, calls=replace(calls, gap=before))
        return form


def _shared(first: str, second: str, *, at_end: bool = False) -> str:
    """The pieces with which both begin, or end."""
    step = -1 if at_end else 1
    pairs = zip(PIECE.findall(first)[::step], PIECE.findall(second)[::step], strict=False)
    return "".join([one for one, _ in takewhile(lambda pair: pair[0] == pair[1], pairs)][::step])


def _cut(text: str, known: Sequence[Sequence[str]]) -> list[str] | None:
    """What is around the known texts of calls; None unless each comes once, in this order.

    `INDEX` is put for the number of a call, from 0 or 1.
    """
    texts = list[str]()
    for each in chain.from_iterable(known):
        before, found, text = text.partition(each)
        if not found:
            return None
        texts.append(before)
    texts = [re.sub(r"(?<!\w)[012](?!\w)", INDEX, each) for each in (*texts, text)]
    return None if any(name in each for each in texts for name in NAMES) else texts


def _around(first: str, others: Sequence[str]) -> CallFormat:
    """The format of calls by the texts before the first, between two if it has two, and after."""
    between, last = others[0], others[-1]
    if len(others) == 1:
        form = CallFormat("", first, "", last, None)
    else:
        after = _shared(between, last)
        before = _shared(first, between.removeprefix(after), at_end=True).lstrip()
        separator, opening = between[len(after) :].removesuffix(before), first.removesuffix(before)
        closing = last.removeprefix(after) if opening else ""  # else it ends the answer
        form = CallFormat(opening, before, "", after, separator, closing)
    is_marked = re.match(rf"[<\[{{][^{ID}{INDEX}]*$", form.marker)
    if not is_marked or bool(form.opening or (form.separator or "").strip()) != form.is_enclosed:
        raise ValueError("does not mark the beginning and the end of calls")
    return form
