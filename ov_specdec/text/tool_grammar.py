"""The grammar of a whole answer in Lark, for llguidance: reasoning, text and calls."""

import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from itertools import takewhile
from typing import Any

from ov_specdec.errors import Option, OptionError, shorten
from ov_specdec.options.generation import GenerationOptions
from ov_specdec.options.tools import chosen_tool, definition_of
from ov_specdec.text.answer_format import ID, INDEX, AnswerFormat, CallFormat, ParameterFormat
from ov_specdec.text.tool_schema import cases_of, parameters_of, types_of

HOLES = {ID: "/[A-Za-z0-9]{9}/", INDEX: "/[0-9]{1,3}/"}

KEY = re.compile(r'[^<>"\s]+')
"""Names of arguments where they are written as they are."""

SEPARATED = frozenset(("type", "properties", "required", "additionalProperties", "$defs"))
SEPARATED |= {"definitions", "description", "title", "$schema", "$id", "default", "examples"}
"""Keywords of all arguments that can be kept where each is written by itself."""

log = logging.getLogger(__name__)


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
    wanted, loose = chosen_tool(options), set[str]()
    tools = [tool for tool in options.tools if wanted in (None, definition_of(tool)["name"])]

    def write(tools: list[Any], choice: Any, text: str | None) -> str:
        return _Writer(form, options, tools, choice, ends, loose).answer(is_reasoning, text)

    def problem_of(tools: list[Any], choice: Any, text: str | None) -> str:
        try:
            return error_of(write(tools, choice, text)).partition("\n")[0]
        except OptionError:
            raise
        except (AttributeError, KeyError, TypeError, ValueError) as error:  # of no schema too
            return str(error)

    choice = options.tool_choice if wanted is None else "required"
    if form.calls and tools and problem_of(tools, choice, text):
        for tool in tools:
            if problem := problem_of([tool], "required", None):
                definition = definition_of(tool)
                held = f"{definition['name']!r}, of whose schema a part cannot be kept ({problem})"
                loose.add(definition["name"])
                is_strict = definition.get("strict") or tool.get("type") == "custom"
                if is_strict or problem_of([tool], "required", None):
                    raise OptionError(Option("tools"), f" holds {held}: change it")
                log.warning("arguments may not fit the tool %s", held)
    return write(tools, choice, text)


class _Writer:
    """Writes one grammar. loose: names of tools of which only the types of arguments are kept."""

    def __init__(
        self,
        form: AnswerFormat,
        options: GenerationOptions,
        tools: list[Any],
        choice: str,
        ends: Set[int],
        loose: Set[str],
    ) -> None:
        self._form, self._options, self._tools, self._choice = form, options, tools, choice
        self._ends, self._loose = ends, loose
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
            begin = self._literal(reasoning.begin)
            start = thought if is_reasoning else f"{begin} {thought} | {start}"
        elif reasoning is None and self._options.thinking_token_budget is not None:
            reason = " needs a chat template that marks reasoning, as this model's does not"
            raise OptionError(Option("thinking_token_budget"), reason, ": leave it out")
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
            mark, before = json.dumps(marker), "ANY"
            if form.calls and form.calls.is_whole_answer:
                before = ""
            text = self._terminal(f"ANY & ~({before} {mark} ANY)")
            begun = self._until(before, marker) if before else mark
            return f"({text} | {begun} {calls})" if calls else text
        begin = form.split(form.reasoning.begin)[:1] if form.reasoning else []
        ids = [str(piece) for piece in [*begin, *pieces] if isinstance(piece, int)]
        text = f"<[^{','.join(ids)}]>*" if ids else "<[*]>*"
        return f"{text} ({self._joined(pieces[place:])} {calls})?" if calls else text

    def _calls(self, calls: CallFormat) -> str:
        """All calls after their marker."""
        for number, tool in enumerate(self._tools):
            self._lines.append(f"call{number}: {self._call(calls, tool)}")
        call = f"({' | '.join(f'call{number}' for number, _ in enumerate(self._tools))})"
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
        is_loose, written = name in self._loose, json.dumps(schema, ensure_ascii=False)
        # Where a text is forced, llguidance takes the name of a token for the token.
        if not is_loose and (spelled := [t for t in self._form.tokens if t in written]):
            raise ValueError(f"it spells the token {spelled[0]}")
        if calls.parameters is None:
            schema = {"type": "object"} if is_loose else schema
            arguments = _json(schema, calls.separators)
        else:
            arguments = " ".join(self._parameters(calls.parameters, tool, schema, is_loose))
        return f"{self._literal(name + calls.middle)} {arguments} {self._literal(calls.after)}"

    def _parameters(
        self,
        form: ParameterFormat,
        tool: Mapping[str, Any],
        root: Mapping[str, Any],
        is_loose: bool,
    ) -> Iterator[str]:
        """Arguments by themselves, in the order of the schema."""
        if not is_loose and (keywords := root.keys() - SEPARATED):
            raise ValueError(f"it has {min(keywords)!r}")
        if grammar := (definition_of(tool).get("format") or {}).get("grammar"):
            name, text = f"custom{len(self._lines)}", grammar["definition"]
            text = text if grammar["syntax"] == "lark" else f"start: /{_slashed(text)}/"
            self._others.append({"name": name, "lark_grammar": text})
            begin = self._literal(form.before + "input" + form.between[0])
            yield f"{begin} @{name} {self._literal(form.after)}"
            return
        properties, required = dict(root.get("properties", {})), root.get("required", ())
        properties |= {key: {} for key in required if key not in properties}
        for key, schema in properties.items():
            if not KEY.fullmatch(key):
                raise ValueError(f"the argument {shorten(key)} has <, >, quotes or white space")
            value = self._value(form, schema, root, is_loose)
            argument = f"{self._literal(form.before + key)} {value}"
            yield argument if key in required else f"({argument})?"
        if not properties and root.get("additionalProperties") is not False:
            key = f"{self._literal(form.before)} /[A-Za-z0-9_.-]{{1,64}}/"
            yield f"({key} {self._value(form, {}, root, is_loose)})*"

    def _value(
        self, form: ParameterFormat, schema: Any, root: Mapping[str, Any], is_loose: bool
    ) -> str:
        """What follows the key of an argument: a text where that fits, and null beside it."""
        types = types_of(schema, root)
        text, other, end = map(self._literal, (*form.between, form.after))
        if "string" in types:
            cases = [case for case in cases_of(schema, root) if "string" in types_of(case, root)]
            texts = " | ".join(self._texts(case, form.after, is_loose) for case in cases)
            null = f' | {other} "null" {end}' if "null" in types else ""
            return f"({text} {self._until(texts, form.after)}{null})"
        if types == {"boolean"}:
            return f"{other} ({' | '.join(map(json.dumps, form.words))}) {end}"
        shared = {name: root[name] for name in ("$defs", "definitions") if name in root}
        schema = {"type": sorted(types)} if is_loose else {**schema, **shared}
        return f"{other} {_json(schema, (', ', ': '))} {end}"

    def _texts(self, schema: Mapping[str, Any], end: str, is_loose: bool) -> str:
        """A terminal of the texts that fit one case of a schema, up to their end."""
        if values := schema.get("enum", [schema["const"]] if "const" in schema else []):
            texts = [value for value in values if isinstance(value, str)]
            texts = [text for text in texts if f"{text}{end}".index(end) == len(text)]
            return " | ".join(json.dumps(text, ensure_ascii=False) for text in texts)
        if is_loose:
            return "ANY"
        if keywords := schema.keys() & {"pattern", "format"}:
            raise ValueError(f"{min(keywords)!r} of a text that is written as it is")
        least, most = schema.get("minLength", 0), schema.get("maxLength")
        is_token = isinstance(self._form.split(end)[0], int)
        # The end is found at its first place: it must not begin among the least characters.
        first = "." if is_token else f"[^{_slashed(end[0])}]"
        return f"/(?s:{first}{{{least}}}.{{0,{'' if most is None else most - least}}})/"

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


def _json(schema: Mapping[str, Any], separators: tuple[str, str]) -> str:
    item, key = separators
    given = {"whitespace_flexible": False, "item_separator": item, "key_separator": key}
    return f"%json {json.dumps({**schema, 'x-guidance': given})}"


def _slashed(regex: str) -> str:
    """A regular expression, to be written within slashes."""
    return re.sub(r"(?<!\\)/", r"\\/", regex).replace("\n", r"\n")
