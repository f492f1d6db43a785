"""The grammar of a whole answer in Lark, for llguidance: reasoning, text and calls."""

import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import dropwhile, takewhile
from typing import Any, TypeVar

from ov_specdec.errors import OptionError, shorten
from ov_specdec.options.generation import GenerationOptions
from ov_specdec.options.schemas import (
    OF_WHOLE,
    cases_of,
    loosen,
    require_exact,
    require_exact_within,
    simplify,
    types_of,
)
from ov_specdec.options.structured import argument_of, definition_of, parameters_of
from ov_specdec.text.answer_format import ID, INDEX, AnswerFormat, CallFormat, ParameterFormat
from ov_specdec.text.grammar_process import TOO_MUCH

HOLES = {ID: "/[A-Za-z0-9]{9}/", INDEX: "/[0-9]{1,3}/"}

KEY = re.compile(r'[^<>"\s]+')
"""Names of arguments where they are written as they are."""

OTHER_PATH = re.compile(r'"\$ref": "((?!#/\$defs/|#/definitions/)[^"]*)')
"""A reference that is lost where each argument is by itself, such as to the whole schema."""

ANY_TOOL = ("auto", "required")
"""Choices that name no tool."""

NO_SCHEMA = (LookupError, AttributeError, TypeError, ValueError, RecursionError)
"""Errors of parameters that are none."""

OF_TEXTS = frozenset(("pattern", "format", "allOf", "not", "if"))
"""Keywords that cannot be kept where a text is written as it is."""

log = logging.getLogger(__name__)

T = TypeVar("T")


def write_answer(
    form: AnswerFormat,
    options: GenerationOptions,
    ends: Set[int],
    is_reasoning: bool | None,
    text: str | None,
    error_of: Callable[[str], str],
) -> str:
    """The grammar of answers, with the schemas of those tools whose grammar has no error.

    ends: tokens that end an answer. is_reasoning: see `ReasoningFormat.is_open`. text: the grammar
    of the text; None if it is free. Raises `OptionError` if a tool with `strict` has an error.
    """
    _check_budget(form, options)
    chosen, loose = options.tool_choice, dict[str, Mapping[str, Any]]()
    tools = options.tools if options.may_call and form.calls else ()
    tools = [tool for tool in tools if chosen in (*ANY_TOOL, definition_of(tool)["name"])]

    def write(tools: Sequence[Any]) -> tuple[str, list[str]]:
        writer = _Writer(form, options, tools, ends, loose)
        return writer.answer(is_reasoning, text), writer.lost

    def problem_of(tools: Sequence[Any]) -> str:
        try:
            grammar, lost = write(tools)
        except (ValueError, RecursionError) as error:
            return str(error)
        except NO_SCHEMA:
            return "it is no JSON Schema"
        return [*lost, error_of(grammar)][0].partition("\n")[0]

    for tool, problem in _refused(tools, problem_of):
        name, is_strict = definition_of(tool)["name"], definition_of(tool).get("strict")
        held = f"{name!r}, of whose schema a part cannot be kept ({problem})"
        if not is_strict:
            with suppress(*NO_SCHEMA):
                loose[name] = _loosen(parameters_of(tool), error_of)
        if is_strict or problem_of([tool]):
            raise OptionError(f"{{tools}} holds {held}: change it", tools=...)
        log.warning("arguments may not fit the tool %s", held)
    return write(tools)[0]


def _check_budget(form: AnswerFormat, options: GenerationOptions) -> None:
    end = form.reasoning.end if form.reasoning else ""
    if options.thinking_token_budget is not None and end not in form.tokens:
        raise OptionError(
            "{thinking_token_budget} needs a chat template that marks the end of reasoning by one "
            "token: leave it out",
            thinking_token_budget=...,
        )


def _refused(of: Sequence[T], problem_of: Callable[[Sequence[T]], str]) -> Iterator[tuple[T, str]]:
    """Those that have a problem, found by halves, with the problem of each."""
    problem = problem_of(of) if of else ""
    if not problem or problem == TOO_MUCH:
        return  # the whole is refused: to try each part could take as long
    if len(of) == 1:
        yield of[0], problem
        return
    for half in (slice(len(of) // 2), slice(len(of) // 2, None)):
        yield from _refused(of[half], problem_of)


def _loosen(schema: Mapping[str, Any], error_of: Callable[[str], str]) -> dict[str, Any]:
    """A schema without what cannot be kept of it."""
    parts, refused = dict[str, Any](), set[str]()

    def refuses(part: dict[str, Any]) -> bool:
        parts.setdefault(text := json.dumps(part), part)
        return text in refused

    def problem_of(texts: Sequence[str]) -> str:
        if path := OTHER_PATH.search(" ".join(texts)):
            return path[0]
        own = [{key: parts[text][key] for key in parts[text] if key != "$ref"} for text in texts]
        array = {"type": "array", "prefixItems": own, "minItems": len(own)}
        try:
            for part in own:
                require_exact(part)
        except ValueError as error:
            return str(error)
        return error_of(json.dumps({"grammars": [{"json_schema": array}]}))

    for _ in range(2):  # what cannot be kept alone, and then beside what can
        loosen(schema, schema, refuses)
        refused.update(text for text, _ in _refused([*parts], problem_of))
    return loosen(schema, schema, refuses)


@dataclass
class _Writer:
    """Writes one grammar. loose: loosened schemas, by the name of their tool.

    lines: further rules. others: further grammars, by name. lost: what else is left out, and why.
    """

    form: AnswerFormat
    options: GenerationOptions
    tools: Sequence[Any]
    ends: Set[int]
    loose: Mapping[str, Mapping[str, Any]]
    lines: list[str] = field(default_factory=lambda: ["ANY: /(?s:.*)/"])
    others: list[dict[str, Any]] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)

    def answer(self, is_reasoning: bool | None, text: str | None) -> str:
        """The whole grammar."""
        reasoning, calls, content = self.form.reasoning, self.form.calls, ""
        if text is not None:
            given = json.loads(text)["grammars"][0] if text[0] == "{" else {"lark_grammar": text}
            self.others.append({**given, "name": "text"})
            content = "@text"
        if calls and self.tools:
            self.lines.append(f"calls: {self._calls(calls)}")
        start = self._rest(calls.gap if calls else "", content)
        if reasoning and is_reasoning is not None:
            thought = f"{self._thought(reasoning.end)} {self._rest(reasoning.gap, content)}"
            begun = f"{self._literal(reasoning.begin)} {thought}"
            start = thought if is_reasoning else f"{begun} | {start}"
        lark = "\n".join([f"start: {start}", *self.lines])
        return json.dumps({"grammars": [{"name": "answer", "lark_grammar": lark}, *self.others]})

    def _thought(self, end: str) -> str:
        """The reasoning, and what ends it."""
        token, budget = self.form.tokens.get(end), self.options.thinking_token_budget
        if token is None:
            return self._until("ANY", end)
        times = "*" if budget is None else f"{{0,{budget}}}"
        return f"{'' if budget == 0 else f'<[^{token}]>{times}'} <[{token}]>"

    def _rest(self, gap: str, content: str) -> str:
        """What follows the reasoning. gap: white space before calls. content: a rule; or free."""
        if not self.tools or self.form.calls is None:
            return content or self._free("")
        required = f"{self._literal(gap + self.form.calls.marker)} calls"
        if self.options.tool_choice != "auto":
            return required
        return f"({content} | {required})" if content else self._free("calls")

    def _free(self, calls: str) -> str:
        """A text without the marker of calls, or up to it if they may follow."""
        form, tokens = self.form, self.form.tokens
        marker = form.calls.marker if form.calls else ""
        pieces = [*dropwhile(lambda piece: piece not in tokens, form.split(marker))]
        if marker and not pieces:
            mark, before = json.dumps(marker), "ANY"
            if form.calls and form.calls.is_whole_answer:
                before = ""
            text = self._terminal(f"ANY & ~({before} {mark} ANY)")
            begun = self._until(before, marker) if before else mark
            return f"({text} | {begun} {calls})" if calls else text
        begin = form.split(form.reasoning.begin)[:1] if form.reasoning else []
        ids = [str(tokens[piece]) for piece in [*begin, *pieces[:1]] if piece in tokens]
        text = f"<[^{','.join(ids)}]>*" if ids else "<[*]>*"
        return f"{text} ({self._literal(''.join(pieces))} {calls})?" if calls else text

    def _calls(self, calls: CallFormat) -> str:
        self.lines += [f"call{n}: {self._call(calls, tool)}" for n, tool in enumerate(self.tools)]
        call = f"({' | '.join(f'call{n}' for n, _ in enumerate(self.tools))})"
        lead = self._literal((calls.opening + calls.before).removeprefix(calls.marker))
        more = ""
        is_several = self.options.parallel_tool_calls and self.options.tool_choice in ANY_TOOL
        if calls.separator is not None and is_several:
            more = f"({self._literal(calls.separator + calls.before)} {call})*"
        # A token that ends answers is left to the model, which may have several.
        tokens, pieces = self.form.tokens, self.form.split(calls.closing)
        closing = takewhile(lambda piece: tokens.get(piece) not in self.ends, pieces)
        return f"{lead} {call} {more} {self._literal(''.join(closing))}"

    def _call(self, calls: CallFormat, tool: Mapping[str, Any]) -> str:
        name, lost = definition_of(tool)["name"], [*self.lost]
        schema = simplify(self.loose.get(name) or parameters_of(tool))
        if calls.parameters is None:
            arguments = _json(schema, calls.separators)
        elif grammar := (definition_of(tool).get("format") or {}).get("grammar"):
            arguments = self._custom(calls.parameters, **grammar)
        else:
            arguments = " ".join(self._arguments(calls.parameters, schema))
        if name in self.loose:
            self.lost = lost
        return f"{self._literal(name + calls.middle)} {arguments} {self._literal(calls.after)}"

    def _custom(self, form: ParameterFormat, syntax: str, definition: str) -> str:
        name = f"custom{len(self.others)}"
        lark = definition if syntax == "lark" else f"start: /{_slashed(definition)}/"
        require_exact_within(lark)
        self.others.append({"name": name, "lark_grammar": lark})
        begin = self._literal(f"{form.before}input{form.between[0]}")
        return f"{begin} @{name} {self._literal(form.after)}"

    def _arguments(self, form: ParameterFormat, root: Mapping[str, Any]) -> Iterator[str]:
        """Arguments by themselves, in the order of the schema."""
        required = root.get("required", ())
        keys = dict.fromkeys([*root.get("properties", ()), *required])
        lost = sorted(root.keys() & OF_WHOLE) + OTHER_PATH.findall(json.dumps(root))
        self.lost += [f"it has {each!r}" for each in lost]
        for key in keys:
            if not KEY.fullmatch(key):
                raise ValueError(f"the argument {shorten(key)} has <, >, quotes or white space")
            value = self._value(form, argument_of(key, root), root)
            argument = f"{self._literal(form.before + key)} {value}"
            yield argument if key in required else f"({argument})?"
        if not keys and root.get("additionalProperties") is not False:
            key = f"{self._literal(form.before)} /[A-Za-z0-9_.-]{{1,64}}/"
            yield f"({key} {self._value(form, argument_of('', root), root)})*"

    def _value(self, form: ParameterFormat, schema: Any, root: Mapping[str, Any]) -> str:
        """What follows the key of an argument: a text where that fits, and null beside it."""
        types, cases = types_of(schema, root), cases_of(schema, root)
        text, other, end = map(self._literal, (*form.between, form.after))
        if "string" in types:
            cases = [case for case in cases if "string" in types_of(case, root)]
            texts = " | ".join(self._texts(case, form.after) for case in cases)
            null = f' | {other} "null" {end}' if "null" in types else ""
            return f"({text} {self._until(texts, form.after)}{null})"
        if types == {"boolean"} and not any(case.keys() & {"const", "enum"} for case in cases):
            return f"{other} ({' | '.join(map(json.dumps, form.words))}) {end}"
        shared = {name: root[name] for name in ("$defs", "definitions") if name in root}
        return f"{other} {_json({**schema, **shared}, (', ', ': '))} {end}"

    def _texts(self, schema: Mapping[str, Any], end: str) -> str:
        """A terminal of the texts that fit one case of a schema, up to their end."""
        if values := schema.get("enum", [schema["const"]] if "const" in schema else []):
            texts = [value for value in values if isinstance(value, str)]
            texts = [text for text in texts if f"{text}{end}".index(end) == len(text)]
            return " | ".join(json.dumps(text, ensure_ascii=False) for text in texts)
        if keywords := schema.keys() & OF_TEXTS:
            self.lost.append(f"{min(keywords)!r} of a text that is written as it is")
        least, most = schema.get("minLength", 0), schema.get("maxLength")
        is_token = self.form.split(end)[0] in self.form.tokens
        # The end is found at its first place: it must not begin among the least characters.
        first = "." if is_token else f"[^{_slashed(end[0])}]"
        return f"/(?s:{first}{{{least}}}.{{0,{'' if most is None else most - least}}})/"

    def _until(self, body: str, text: str) -> str:
        """What fits a terminal, and then a text at its first place."""
        name, [first, *rest] = self._terminal(body), self.form.split(text)
        if first in self.form.tokens:
            return f"{name} {self._literal(text)}"
        self.lines.append(f"{name.lower()}[suffix={json.dumps(first)}]: {name}")
        return f"{name.lower()} {self._literal(''.join(rest))}"

    def _terminal(self, body: str) -> str:
        self.lines.append(f"T{len(self.lines)}: {body}")
        return f"T{len(self.lines) - 1}"

    def _literal(self, text: str) -> str:
        """A text, and special tokens in it."""
        known = HOLES | {name: f"<[{token}]>" for name, token in self.form.tokens.items()}
        return " ".join(known.get(piece) or json.dumps(piece) for piece in self.form.split(text))


def _json(schema: Mapping[str, Any], separators: tuple[str, str]) -> str:
    item, key = separators
    given = {"whitespace_flexible": False, "item_separator": item, "key_separator": key}
    return f"%json {json.dumps({**schema, 'x-guidance': given})}"


def _slashed(regex: str) -> str:
    """A regular expression, to be written within slashes."""
    return re.sub(r"(?<!\\)/", r"\\/", regex).replace("\n", r"\n")
