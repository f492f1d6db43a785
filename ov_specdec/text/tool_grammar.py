"""The grammar of a whole answer in Lark, for llguidance: reasoning, text and calls."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Set
from itertools import takewhile
from types import MappingProxyType
from typing import Any, Literal

from ov_specdec.errors import Option, OptionError, shorten
from ov_specdec.options.generation import GenerationOptions
from ov_specdec.options.tools import chosen_tool, definition_of
from ov_specdec.text.answer_format import ID, INDEX, AnswerFormat, CallFormat, ParameterFormat
from ov_specdec.text.tool_schema import (
    Kind,
    UnsupportedError,
    kind_of,
    parameters_of,
    texts_of,
    types_of,
)

Care = Literal["strict", "lenient", "free"]
"""What holds of a tool's schema: all, what llguidance supports, or the types of its arguments."""

HOLES = {ID: "/[A-Za-z0-9]{9}/", INDEX: "/[0-9]{1,3}/"}

OF_OBJECTS = frozenset(
    "allOf anyOf oneOf not if patternProperties propertyNames minProperties maxProperties "
    "dependentRequired dependentSchemas unevaluatedProperties $ref".split()
)
"""Keywords of all arguments together, which cannot be kept where each is written by itself."""

KEY = re.compile(r'[^<>"\s]+')
"""Names of arguments, which templates write as they are."""


def write_grammar(
    form: AnswerFormat,
    options: GenerationOptions,
    ends: Set[int],
    is_reasoning: bool,
    text: Mapping[str, Any] | None = None,
    care: Mapping[str, Care] = MappingProxyType({}),
) -> str:
    """A grammar of answers to `options`; `UnsupportedError` for a keyword that cannot be kept.

    ends: tokens that end an answer. is_reasoning: whether the prompt has begun the reasoning.
    text: the grammar of the text; None if it is free. care: by names of tools; else "strict".
    """
    writer = _Writer(form, options, ends, care)
    lark = writer.answer(is_reasoning, has_text=text is not None)
    others = [*([] if text is None else [{**text, "name": "text"}]), *writer.others]
    return json.dumps({"grammars": [{"name": "answer", "lark_grammar": lark}, *others]})


class _Writer:
    """Writes the rules of one grammar. See `write_grammar`."""

    def __init__(
        self,
        form: AnswerFormat,
        options: GenerationOptions,
        ends: Set[int],
        care: Mapping[str, Care],
    ) -> None:
        self._form, self._options, self._ends, self._care = form, options, ends, care
        self._lines = ["ANY: /(?s:.*)/"]
        self.others: list[dict[str, str]] = []

    def answer(self, is_reasoning: bool, *, has_text: bool) -> str:
        """All rules."""
        reasoning, calls = self._form.reasoning, self._form.calls
        if calls and self._options.tools and self._options.tool_choice != "none":
            self._lines.append(f"calls: {self._calls(calls)}")
        start = self._rest(calls.gap if calls else "", has_text)
        if reasoning is not None:
            thought = f"{self._thought(reasoning.end)} {self._rest(reasoning.gap, has_text)}"
            begin = self._literal(reasoning.begin)
            start = thought if is_reasoning else f"{begin} {thought} | {start}"
        return "\n".join([f"start: {start}", *self._lines])

    def _thought(self, end: str) -> str:
        """The reasoning, and what ends it."""
        pieces, budget = self._form.split(end), self._options.thinking_token_budget
        if isinstance(pieces[0], int):
            times = "*" if budget is None else f"{{0,{budget}}}"
            return f"<[^{pieces[0]}]>{times} {self._literal(end)}"
        if budget is not None:
            reason = f" needs a token that ends reasoning, which {end!r} is not in this model"
            raise OptionError(Option("thinking_token_budget"), reason, ": leave it out")
        return self._until("ANY", end)

    def _rest(self, gap: str, has_text: bool) -> str:
        """What follows the reasoning. gap: white space before calls."""
        calls, choice = self._form.calls, self._options.tool_choice
        if calls is None or not self._options.tools or choice == "none":
            marker = calls.marker if calls and self._options.tools else ""
            return "@text" if has_text else self._free(marker, "")
        required = f"{self._literal(gap + calls.marker)} calls"
        if choice != "auto":
            return required
        return f"(@text | {required})" if has_text else self._free(calls.marker, "calls")

    def _free(self, marker: str, calls: str) -> str:
        """A text without a marker, or up to it if calls may follow."""
        pieces = self._form.split(marker)
        place = next((n for n, piece in enumerate(pieces) if isinstance(piece, int)), None)
        if marker and place is None:
            mark = json.dumps(marker)
            is_whole = self._form.calls is not None and self._form.calls.is_whole_answer
            text = self._terminal(
                f"ANY & ~({mark} ANY)" if is_whole else f"ANY & ~(ANY {mark} ANY)"
            )
            begun = mark if is_whole else self._until("ANY", marker)
            return f"({text} | {begun} {calls})" if calls else text
        begin = self._form.split(self._form.reasoning.begin)[:1] if self._form.reasoning else []
        ids = [str(piece) for piece in [*begin, *pieces] if isinstance(piece, int)]
        text = f"<[^{','.join(ids)}]>*" if ids else "<[*]>*"
        return f"{text} ({self._joined(pieces[place:])} {calls})?" if calls else text

    def _calls(self, calls: CallFormat) -> str:
        """All calls after their marker."""
        wanted = chosen_tool(self._options)
        tools = [t for t in self._options.tools if wanted in (None, definition_of(t)["name"])]
        for number, tool in enumerate(tools):
            self._lines.append(f"call{number}: {self._call(calls, tool)}")
        call = f"({' | '.join(f'call{number}' for number, _ in enumerate(tools))})"
        lead = self._literal((calls.opening + calls.before).removeprefix(calls.marker))
        more = ""
        if calls.separator is not None and self._options.parallel_tool_calls:
            more = f"({self._literal(calls.separator + calls.before)} {call})*"
        # A token that ends answers is left to the model, which may have several.
        closing = takewhile(lambda p: p not in self._ends, self._form.split(calls.closing))
        return f"{lead} {call} {more} {self._joined(closing)}"

    def _call(self, calls: CallFormat, tool: Mapping[str, Any]) -> str:
        """A call after the text before its name."""
        name = definition_of(tool)["name"]
        care = self._care.get(name, "strict")
        if calls.parameters is None:
            schema = {"type": "object"} if care == "free" else parameters_of(tool)
            arguments = self._json(schema, calls.separators, care)
        else:
            arguments = " ".join(self._parameters(calls.parameters, tool, care))
        return f"{self._literal(name + calls.middle)} {arguments} {self._literal(calls.after)}"

    def _json(self, schema: Mapping[str, Any], separators: tuple[str, str], care: Care) -> str:
        item, key = separators
        given = {"whitespace_flexible": False, "item_separator": item, "key_separator": key}
        given |= {"lenient": True} if care == "lenient" else {}
        return f"%json {json.dumps({**schema, 'x-guidance': given})}"

    def _parameters(
        self, form: ParameterFormat, tool: Mapping[str, Any], care: Care
    ) -> Iterator[str]:
        """Arguments by themselves, in the order of the schema."""
        root = parameters_of(tool)
        if care == "strict" and (keywords := root.keys() & OF_OBJECTS):
            raise UnsupportedError(f"{min(keywords)!r} for all arguments")
        if grammar := (definition_of(tool).get("format") or {}).get("grammar"):
            begin = self._literal(form.before + "input" + form.between[0])
            yield f"{begin} {self._custom(**grammar, end=form.after)}"
            return
        properties, required = dict(root.get("properties", {})), root.get("required", ())
        properties |= {key: {} for key in required if key not in properties}
        for key, schema in properties.items():
            if not KEY.fullmatch(key):
                raise UnsupportedError(f"the name {shorten(key)} of an argument")
            begin = self._literal(form.before + key)
            value = self._argument(form, begin, schema, root, care)
            yield value if key in required else f"({value})?"
        if not properties and root.get("additionalProperties") is not False:
            begin = f"{self._literal(form.before)} /[A-Za-z0-9_.-]{{1,64}}/"
            yield f"({self._argument(form, begin, {}, root, care)})*"

    def _argument(
        self, form: ParameterFormat, begin: str, schema: Any, root: Mapping[str, Any], care: Care
    ) -> str:
        """One argument. begin: up to its key."""
        kind, types = kind_of(schema, root), types_of(schema, root)
        of_text, of_others = map(self._literal, form.between)
        if care == "free":
            schema = {"type": sorted(types)}
        cases, end = [], self._literal(form.after)
        if kind is not Kind.JSON:
            texts = " | ".join(
                self._texts(case, form.after, care) for case in texts_of(schema, root)
            )
            cases.append(f"{of_text} {self._until(texts, form.after)}")
            schema = {"type": sorted(types - {"string"})}
        if kind is Kind.JSON and types == {"boolean"}:
            words = " | ".join(map(json.dumps, form.words))
            cases.append(f"{of_others} ({words}) {end}")
        elif kind is Kind.JSON or (kind is not Kind.TEXT and of_text != of_others):
            shared = {name: root[name] for name in ("$defs", "definitions") if name in root}
            cases.append(
                f"{of_others} {self._json({**schema, **shared}, (', ', ': '), care)} {end}"
            )
        elif kind is Kind.TEXT_OR_NULL:
            cases.append(f'{of_others} "null" {end}')
        return f"{begin} ({' | '.join(cases)})"

    def _texts(self, schema: Mapping[str, Any], end: str, care: Care) -> str:
        """What a terminal of texts has to fit. end: what follows a text, and is in none."""
        values = schema.get("enum", [schema["const"]] if "const" in schema else [])
        texts = [
            json.dumps(value) for value in values if isinstance(value, str) and end not in value
        ]
        if values:
            return " | ".join(texts)
        least, most, pattern = (schema.get(name) for name in ("minLength", "maxLength", "pattern"))
        counted = least is not None or most is not None
        if care == "strict" and ("format" in schema or (pattern and counted)):
            raise UnsupportedError(
                "'format'" if "format" in schema else "a length beside 'pattern'"
            )
        if pattern and care == "strict":
            before = "" if pattern.startswith("^") else "(?s:.*)"
            after = "" if pattern.endswith("$") else "(?s:.*)"
            return f"/{before}({_escaped(pattern.strip('^$'))}){after}/ & ~(ANY {json.dumps(end.strip())} ANY)"
        return f"/(?s:.{{{least or 0},{'' if most is None else most}}})/" if counted else "ANY"

    def _custom(self, syntax: str, definition: str, end: str) -> str:
        """The input of a custom tool, and what follows it."""
        if syntax == "regex":
            return self._until(f"/{_escaped(definition)}/", end)
        name = f"custom{len(self.others)}"
        self.others.append({"name": name, "lark_grammar": definition})
        return f"@{name} {self._literal(end)}"

    def _until(self, body: str, text: str) -> str:
        """What fits a terminal, and then a text at its first place."""
        name = self._terminal(body)
        first, *rest = self._form.split(text)
        if isinstance(first, int):
            return f"{name} {self._literal(text)}"
        self._lines.append(f"until{name}[suffix={json.dumps(first)}]: {name}")
        return f"until{name} {self._joined(rest)}"

    def _terminal(self, body: str) -> str:
        self._lines.append(f"T{len(self._lines)}: {body}")
        return f"T{len(self._lines) - 1}"

    def _literal(self, text: str) -> str:
        return self._joined(self._form.split(text))

    def _joined(self, pieces: Iterable[str | int]) -> str:
        """Special tokens and texts, one after the other."""
        written = []
        for piece in pieces:
            if isinstance(piece, int):
                written.append(f"<[{piece}]>")
            else:
                texts = filter(None, re.split(f"({ID}|{INDEX})", piece))
                written += [HOLES.get(text) or json.dumps(text) for text in texts]
        return " ".join(written)


def _escaped(regex: str) -> str:
    """A regular expression within slashes."""
    return re.sub(r"(?<!\\)/", r"\/", regex).replace("\n", r"\n")
