"""How the values of options are typed on the command line."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|.|$)", re.DOTALL)
MEANINGS = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\"}


class Way(click.ParamType[Any]):
    """How a value is typed.

    parse: raises `ValueError` for a value that cannot be read. form: the reason in the message; "":
    that of the error. whole: whether a list is one argument. note: a supplement of the help.
    """

    name = "value"

    def __init__(
        self, parse: Callable[[str], Any], form: str = "", *, whole: bool = False, note: str = ""
    ) -> None:
        self._parse = parse
        self._form = form
        self.whole = whole
        self.note = note

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """As in click. Defaults are parsed already."""
        try:
            return self._parse(value) if isinstance(value, str) else value
        except (OSError, ValueError) as error:
            self.fail(f"'{value}' {self._form.format(error=error) or error}", param, ctx)


def unescape(text: str) -> str:
    r"""The text with \n, \t, \r, \\, \xNN and \uNNNN replaced by their characters.

    Raises `ValueError` for any other escape, for half of a surrogate pair, and for bytes that are
    not UTF-8.
    """
    replaced = ESCAPE.sub(_character, text)
    # Python writes characters beyond U+FFFF as one; \uNNNN has two halves for them.
    try:
        return replaced.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError as error:
        raise ValueError("it is not valid text; give it as UTF-8") from error


def _character(match: re.Match[str]) -> str:
    escape = match[1]
    if len(escape) > 1:
        return chr(int(escape[1:], 16))
    if escape not in MEANINGS:
        raise ValueError(f"\\{escape} is not an escape; write \\\\ for a backslash")
    return MEANINGS[escape]


def _sizes(text: str) -> str | tuple[int, ...]:
    numbers = text.split(",")
    return tuple(map(int, numbers)) if all(map(str.isdecimal, numbers)) else text


def _bias(text: str) -> tuple[int, float]:
    token, _, bias = text.partition("=")
    return int(token), float(bias)


def _property(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise ValueError
    return key, value


def _range(text: str) -> tuple[int, int]:
    low, high = map(int, text.split(":"))
    if not 1 <= low <= high:
        raise ValueError
    return low, high


def _object(text: str) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except ValueError as error:
        raise ValueError(f"is not valid JSON: {error}") from error
    if not isinstance(content, dict):
        raise ValueError("must be a JSON object")
    return content


def _list(file: str) -> list[Any]:
    """The list in a JSON file."""
    try:
        content = json.loads(Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"cannot be read as JSON: {error}") from error
    if not isinstance(content, list):
        raise ValueError("must hold a JSON list of schemas")
    return content


WAYS = {
    "auto|N": Way(lambda t: t if t == "auto" else int(t), "must be auto or a whole number"),
    "auto|none|N,N,...": Way(_sizes, whole=True),
    "ID,ID,...": Way(
        lambda t: tuple(map(int, t.split(","))) if t else (),
        "must be token ids with commas between",
        whole=True,
    ),
    "ID=BIAS": Way(_bias, "must have the form ID=BIAS"),
    "JSON": Way(_object, whole=True),
    "JSON-FILE": Way(_list, whole=True),
    "KEY=VALUE": Way(_property, "must have the form KEY=VALUE"),
    "MIN:MAX": Way(_range, "must be MIN:MAX, two whole numbers, such as 1:4", whole=True),
    "STRING": Way(unescape, "cannot be read: {error}", note=r"Escapes: \n \t \r \\ \xNN \uNNNN."),
    "TEXT-FILE": Way(
        lambda file: Path(file).read_text(encoding="utf-8"), "cannot be read as text: {error}"
    ),
    "X|none": Way(lambda t: None if t == "none" else float(t), "must be a number or none"),
}
"""By metavar; other values are as their type reads them."""
