"""The grammar of a whole answer in Lark, for llguidance: reasoning, text and calls."""

import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from itertools import takewhile
from typing import Any, Literal

from ov_specdec.errors import Option, OptionError, shorten
from ov_specdec.options.generation import GenerationOptions
from ov_specdec.options.tools import chosen_tool, definition_of
from ov_specdec.text.answer_format import ID, INDEX, AnswerFormat, CallFormat, ParameterFormat
from ov_specdec.text.tool_schema import cases_of, parameters_of, types_of

Care = Literal["strict", "lenient", "types"]
"""What holds of a schema: all, what llguidance supports, or the types of the arguments."""

HOLES = {ID: "/[A-Za-z0-9]{9}/", INDEX: "/[0-9]{1,3}/"}

KEY = re.compile(r'[^<>"\s]+')
"""Names of arguments where they are written as they are."""

OF_OBJECTS = frozenset(
    {"allOf", "anyOf", "oneOf", "not", "if", "patternProperties", "propertyNames", "$ref"}
    | {"minProperties", "maxProperties", "dependentRequired", "dependentSchemas"}
)
"""Keywords that cannot be kept where each argument is written by itself."""

log = logging.getLogger(__name__)


class UnsupportedError(ValueError):
    """A part of a schema cannot be kept."""


def write_answer(
    form: AnswerFormat,
    options: GenerationOptions,
    ends: Set[int],
    is_reasoning: bool | None,
    text: str | None,
    fails: Callable[[str], str],
) -> str:
    """The grammar of answers, which keeps of the tools' schemas what can be kept.

    ends: tokens that end an answer. is_reasoning: see `ReasoningFormat.is_open`.
    text: the grammar of the text; None if it is free. fails: the error of a grammar, or "".
    Raises `OptionError` for tools with `strict` of which something cannot be kept.
    """
    if form.reasoning is None and options.thinking_token_budget is not None:
        reason = " needs a chat template that marks reasoning, as this model's does not"
        raise OptionError(Option("thinking_token_budget"), reason, ": leave it out")
    wanted, care = chosen_tool(options), dict[str, Care]()
    tools = [tool for tool in options.tools if wanted in (None, definition_of(tool)["name"])]
    choice = options.tool_choice if wanted is None else "required"

    def write(tools: list[Any], choice: Any, text: str | None) -> str:
        return _Writer(form, options, tools, choice, ends, care).answer(is_reasoning, text)

    def error_of(tool: Any) -> str:
        try:
            return fails(write([tool], "required", None))
        except UnsupportedError as error:
            return str(error)

    try:
        if not fails(whole := write(tools, choice, text)) or form.calls is None:
            return whole
    except UnsupportedError:
        pass  # of which tool, is found below
    for tool in tools:
        name, is_strict = definition_of(tool)["name"], definition_of(tool).get("strict")
        if not (error := error_of(tool)):
            continue
        problem = f"{name!r}, of whose schema a part cannot be kept ({error})"
        if is_strict or tool.get("type") == "custom":
            raise OptionError(Option("tools"), f" holds {problem}: change it, or leave out strict")
        log.warning("arguments may not fit the tool %s", problem)
        care[name] = "lenient"
        if error_of(tool):
            care[name] = "types"
    return write(tools, choice, text)


class _Writer:
    """Writes one grammar. See `write_answer`."""

    def __init__(
        self,
        form: AnswerFormat,
        options: GenerationOptions,
        tools: list[Any],
        choice: str,
        ends: Set[int],
        care: Mapping[str, Care],
    ) -> None:
        self._form, self._options, self._tools, self._choice = form, options, tools, choice
        self._ends, self._care = ends, care
        self._lines = ["ANY: /(?s:.*)/"]
        self._others: list[dict[str, Any]] = []

    def answer(self, is_reasoning: bool | None, text: str | None) -> str:
        """The whole grammar."""
        reasoning, calls = self._form.reasoning, self._form.calls
        if text is not None:
            given = json.loads(text)["grammars"][0] if text[0] == "{" else {"lark_grammar": text}
            self._others.append({**given, "name": "text"})
        if calls and self._tools and self._choice != "none":
            self._lines.append(f"calls: {self._calls(calls)}")
        start = self._rest(calls.gap if calls else "", text is not None)
        if reasoning is not None and is_reasoning is not None:
            thought = (
                f"{self._thought(reasoning.end)} {self._rest(reasoning.gap, text is not None)}"
            )
            start = (
                thought if is_reasoning else f"{self._literal(reasoning.begin)} {thought} | {start}"
            )
        lark = "\n".join([f"start: {start}", *self._lines])
        return json.dumps({"grammars": [{"name": "answer", "lark_grammar": lark}, *self._others]})

    def _thought(self, end: str) -> str:
        """The reasoning, and what ends it."""
        [first, *_], budget = self._form.split(end), self._options.thinking_token_budget
        if isinstance(first, int):
            times = "*" if budget is None else f"{{0,{budget}}}"
            return f"{'' if budget == 0 else f'<[^{first}]>{times}'} {self._literal(end)}"
        if budget is None:
            return self._until("ANY", end)
        reason = f" needs a single token that ends reasoning, and this model has none for {end!r}"
        raise OptionError(Option("thinking_token_budget"), reason, ": leave it out")

    def _rest(self, gap: str, has_text: bool) -> str:
        """What follows the reasoning. gap: white space before calls."""
        marker = self._form.calls.marker if self._form.calls and self._tools else ""
        if not marker or self._choice == "none":
            return "@text" if has_text else self._free(marker, "")
        required = f"{self._literal(gap + marker)} calls"
        if self._choice != "auto":
            return required
        return f"(@text | {required})" if has_text else self._free(marker, "calls")

    def _free(self, marker: str, calls: str) -> str:
        """A text without a marker, or up to it if calls may follow."""
        pieces, form = self._form.split(marker), self._form
        place = next((n for n, piece in enumerate(pieces) if isinstance(piece, int)), None)
        if marker and place is None:
            mark = json.dumps(marker)
            if form.calls and form.calls.is_whole_answer:
                text, begun = self._terminal(f"ANY & ~({mark} ANY)"), mark
            else:
                text, begun = self._terminal(f"ANY & ~(ANY {mark} ANY)"), self._until("ANY", marker)
            return f"({text} | {begun} {calls})" if calls else text
        begin = form.split(form.reasoning.begin)[:1] if form.reasoning else []
        ids = [str(piece) for piece in [*begin, *pieces] if isinstance(piece, int)]
        text = f"<[^{','.join(ids)}]>*" if ids else "<[*]>*"
        return f"{text} ({self._joined(pieces[place:])} {calls})?" if calls else text

    def _calls(self, calls: CallFormat) -> str:
        """All calls after their marker."""
        names = [f"call{number}" for number, _ in enumerate(self._tools)]
        self._lines += [
            f"{name}: {self._call(calls, tool)}"
            for name, tool in zip(names, self._tools, strict=True)
        ]
        call = f"({' | '.join(names)})"
        lead = self._literal((calls.opening + calls.before).removeprefix(calls.marker))
        more = ""
        if calls.separator is not None and self._options.parallel_tool_calls:
            more = f"({self._literal(calls.separator + calls.before)} {call})*"
        # A token that ends answers is left to the model, which may have several.
        closing = takewhile(lambda p: p not in self._ends, self._form.split(calls.closing))
        return f"{lead} {call} {more} {self._joined(closing)}"

    def _call(self, calls: CallFormat, tool: Mapping[str, Any]) -> str:
        """A call from its name on."""
        name, schema = definition_of(tool)["name"], parameters_of(tool)
        care, written = self._care.get(name, "strict"), json.dumps(schema, ensure_ascii=False)
        # Where a text is forced, llguidance takes the name of a token for the token.
        if care != "types" and (spelled := [t for t in self._form.tokens if t in written]):
            raise UnsupportedError(f"it spells the token {spelled[0]}")
        grammar = (definition_of(tool).get("format") or {}).get("grammar")
        if calls.parameters is None:
            schema = {"type": "object"} if care == "types" else schema
            arguments = self._json(schema, calls.separators, care)
        elif grammar:
            begin = self._literal(calls.parameters.before + "input" + calls.parameters.between[0])
            arguments = f"{begin} {self._custom(**grammar, end=calls.parameters.after)}"
        else:
            arguments = " ".join(self._parameters(calls.parameters, schema, care))
        return f"{self._literal(name + calls.middle)} {arguments} {self._literal(calls.after)}"

    def _json(self, schema: Mapping[str, Any], separators: tuple[str, str], care: Care) -> str:
        item, key = separators
        given = {"whitespace_flexible": False, "item_separator": item, "key_separator": key}
        given |= {"lenient": True} if care == "lenient" else {}
        return f"%json {json.dumps({**schema, 'x-guidance': given})}"

    def _custom(self, syntax: str, definition: str, end: str) -> str:
        """The input of a custom tool, and what follows it."""
        if syntax == "regex":
            return self._until(f"/{_slashed(definition)}/", end)
        self._others.append({"name": f"custom{len(self._lines)}", "lark_grammar": definition})
        return f"@custom{len(self._lines)} {self._literal(end)}"

    def _parameters(
        self, form: ParameterFormat, root: Mapping[str, Any], care: Care
    ) -> Iterator[str]:
        """Arguments by themselves, in the order of the schema."""
        if care == "strict" and (keywords := root.keys() & OF_OBJECTS):
            raise UnsupportedError(f"{min(keywords)!r} for all arguments")
        properties, required = dict(root.get("properties", {})), root.get("required", ())
        properties |= {key: {} for key in required if key not in properties}
        for key, schema in properties.items():
            if not KEY.fullmatch(key):
                held = f" holds the argument {shorten(key)}, which this model's format cannot write"
                raise OptionError(Option("tools"), held, ": rename it")
            argument = f"{self._literal(form.before + key)} {self._value(form, schema, root, care)}"
            yield argument if key in required else f"({argument})?"
        if not properties and root.get("additionalProperties") is not False:
            key = f"{self._literal(form.before)} /[A-Za-z0-9_.-]{{1,64}}/"
            yield f"({key} {self._value(form, {}, root, care)})*"

    def _value(
        self, form: ParameterFormat, schema: Any, root: Mapping[str, Any], care: Care
    ) -> str:
        """What follows the key of an argument."""
        types, cases = types_of(schema, root), list[str]()
        text, other, end = map(self._literal, (*form.between, form.after))
        if "string" in types:  # the only type then, besides null
            given = [case for case in cases_of(schema, root) if "string" in types_of(case, root)]
            texts = " | ".join(self._texts(case, form.after, care) for case in given)
            cases.append(f"{text} {self._until(texts, form.after)}")
        if types == {"boolean"}:
            cases.append(f"{other} ({' | '.join(map(json.dumps, form.words))}) {end}")
        elif "string" not in types:
            if care == "types":
                schema = {"type": sorted(types)}
            shared = {name: root[name] for name in ("$defs", "definitions") if name in root}
            cases.append(f"{other} {self._json({**schema, **shared}, (', ', ': '), care)} {end}")
        elif "null" in types:
            cases.append(f'{other} "null" {end}')
        return f"({' | '.join(cases)})"

    def _texts(self, schema: Mapping[str, Any], end: str, care: Care) -> str:
        """A terminal of the texts that fit an alternative, and do not hold what ends them."""
        if values := schema.get("enum", [schema["const"]] if "const" in schema else []):
            texts = [value for value in values if isinstance(value, str)]
            texts = [text for text in texts if f"{text}{end}".index(end) == len(text)]
            return " | ".join(json.dumps(text, ensure_ascii=False) for text in texts)
        least, most, pattern = (schema.get(name) for name in ("minLength", "maxLength", "pattern"))
        is_token = isinstance(self._form.split(end)[0], int)
        if care == "strict" and "format" in schema:
            raise UnsupportedError("'format' of a text that is written as it is")
        if pattern and care == "strict":
            if least or most is not None:
                raise UnsupportedError("'pattern' beside 'minLength' or 'maxLength'")
            before = "" if pattern.startswith("^") else "(?s:.*)"
            after = "" if re.search(r"(?<!\\)\$$", pattern) else "(?s:.*)"
            regex = _slashed(pattern.removeprefix("^")).removesuffix("" if after else "$")
            without = "" if is_token else f" & ~(ANY {json.dumps(end.strip())} ANY)"
            return f"/{before}({regex}){after}/{without}"
        first = "." if is_token else f"[^{_slashed(re.escape(end[0]))}]"
        more = "" if most is None else most - (least or 0)
        return (
            f"/(?s:{first}{{{least or 0}}}.{{0,{more}}})/" if least or most is not None else "ANY"
        )

    def _until(self, body: str, text: str) -> str:
        """What fits a terminal, and then a text at its first place."""
        name, [first, *rest] = self._terminal(body), self._form.split(text)
        if isinstance(first, int):
            return f"{name} {self._literal(text)}"
        self._lines.append(f"{name.lower()}[suffix={json.dumps(first)}]: {name}")
        return f"{name.lower()} {self._joined(rest)}"

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


def _slashed(regex: str) -> str:
    """A regular expression, to be written within slashes."""
    return re.sub(r"(?<!\\)/", r"\\/", regex).replace("\n", r"\n")
