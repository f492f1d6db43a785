"""How the values of options are typed on the command line."""

import codecs
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|[ntr\\])?")


@dataclass(frozen=True, eq=False)
class Way(click.ParamType[Any]):
    """How a value is typed.

    parse: raises `ValueError` for a value that cannot be read. form: the reason in the message; "":
    that of the error. whole: whether a list is one argument. note: a supplement of the help.
    """

    name = "value"
    parse: Callable[[str], Any]
    form: str = ""
    whole: bool = False
    note: str = ""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """As in click. Defaults are parsed already."""
        try:
            return self.parse(value) if isinstance(value, str) else value
        except (OSError, ValueError) as error:
            self.fail(f"'{value}' {self.form.format(error=error) or error}", param, ctx)


def unescape(text: str) -> str:
    r"""The text with \n, \t, \r, \\, \xNN and \uNNNN replaced by their characters.

    Raises `ValueError` for a backslash before anything else, and for text that is not UTF-8.
    """
    replaced = ESCAPE.sub(lambda match: codecs.decode(match[0], "unicode_escape"), text)
    # Python writes characters beyond U+FFFF as one; \uNNNN has two halves for them.
    return replaced.encode("utf-16", "surrogatepass").decode("utf-16")


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


def _sizes(text: str) -> str | tuple[int, ...]:
    return _numbers(text) if all(map(str.isdecimal, text.split(","))) else text


def _bias(text: str) -> tuple[int, float]:
    token, _, bias = text.partition("=")
    return int(token), float(bias)


def _property(text: str) -> tuple[str, str]:
    key, value = text.split("=", 1)
    if not key:
        raise ValueError
    return key, value


def _range(text: str) -> tuple[int, int]:
    low, high = map(int, text.split(":"))
    if not 1 <= low <= high:
        raise ValueError
    return low, high


WAYS = {
    "auto|N": Way(lambda t: t if t == "auto" else int(t), "must be auto or a whole number"),
    "auto|none|N,N,...": Way(_sizes, whole=True),
    "ID,ID,...": Way(lambda t: _numbers(t) if t else (), "must be token ids: 5,6", whole=True),
    "N,N,...": Way(_numbers, "must be whole numbers: 1,2,4", whole=True),
    "ID=BIAS": Way(_bias, "must have the form ID=BIAS"),
    "JSON": Way(json.loads, "is not valid JSON: {error}", whole=True),
    "JSON-FILE": Way(
        lambda file: json.loads(Path(file).read_text(encoding="utf-8")),
        "cannot be read as JSON: {error}",
        whole=True,
    ),
    "KEY=VALUE": Way(_property, "must have the form KEY=VALUE"),
    "MIN:MAX": Way(_range, "must be MIN:MAX, two whole numbers, such as 1:4", whole=True),
    "STRING": Way(
        unescape,
        r"has an unknown escape, or is not UTF-8: write \\ for a backslash",
        note=r"Escapes: \n \t \r \\ \xNN \uNNNN.",
    ),
    "TEXT-FILE": Way(
        lambda file: Path(file).read_text(encoding="utf-8"), "cannot be read as text: {error}"
    ),
    "X|none": Way(lambda t: None if t == "none" else float(t), "must be a number or none"),
}
"""By metavar; other values are as their type reads them."""
