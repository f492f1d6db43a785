"""Command-line options, made from options of the package, and how their values are typed."""

import functools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import click
from pydantic.fields import FieldInfo

from ov_specdec.cli.help import GroupedOption
from ov_specdec.options.model import by_group, display_of, kinds_of, options_of_function

Command = Callable[..., None]


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
    r"""The text with the escapes of JSON, such as \n, replaced; `ValueError` for others and \"."""
    replaced: str = json.loads('"' + text.replace('"', r"\"") + '"', strict=False)
    replaced.encode()  # refuses halves of surrogate pairs
    return replaced


def read_text(file: str) -> str:
    """The text of a file; of stdin for -."""
    with click.open_file(file, encoding="utf-8") as stream:
        text: str = stream.read()
    return text


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


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
    "auto|none|N,N,...": Way(
        lambda t: _numbers(t) if all(map(str.isdecimal, t.split(","))) else t, whole=True
    ),
    "ID,ID,...": Way(lambda t: _numbers(t) if t else (), "must be token ids: 5,6", whole=True),
    "N,N,...": Way(_numbers, "must be whole numbers: 1,2,4", whole=True),
    "ID=BIAS": Way(
        lambda t: (int(t.partition("=")[0]), float(t.partition("=")[2])),
        "must have the form ID=BIAS",
    ),
    "JSON": Way(json.loads, "is not valid JSON: {error}", whole=True),
    "JSON-FILE": Way(
        lambda file: json.loads(read_text(file)), "cannot be read as JSON: {error}", whole=True
    ),
    "KEY=VALUE": Way(_property, "must have the form KEY=VALUE"),
    "MIN:MAX": Way(_range, "must be MIN:MAX, two whole numbers, such as 1:4", whole=True),
    "STRING": Way(
        unescape,
        r"has an unknown escape, or is not UTF-8: write \\ for a backslash",
        note=r"Escapes: \n \t \r \\ \uNNNN.",
    ),
    "TEXT-FILE": Way(read_text, "cannot be read as text: {error}"),
    "X|none": Way(lambda t: None if t == "none" else float(t), "must be a number or none"),
}
"""By metavar; other values are as their type reads them."""


def option_of(
    name: str, field: FieldInfo, default: Any, group: str
) -> Callable[[Command], Command]:
    """The click option of an option. default: `...` if it has to be given."""
    display, kinds = display_of(field), kinds_of(field.annotation)
    way = WAYS.get(display.metavar)
    origin, item = get_origin(kinds[0]), kinds[0]
    several = origin in (Sequence, Mapping)
    if origin is Sequence:
        (item, *_) = kinds_of(get_args(kinds[0])[0])
    if way is not None and way.whole:  # a list of lists may still be repeated
        several = get_origin(item) is Sequence
    is_switch = kinds == [bool]
    choices = [each for kind in kinds if get_origin(kind) is Literal for each in get_args(kind)]
    kind: Any = way or item
    if choices and way is None:
        switch = (True, False) if bool in kinds else ()
        kind = click.Choice((*choices, *switch), case_sensitive=not switch)
    flag = flag_name(name, field)
    if is_switch and default is not False:
        flag = f"{flag}/--no-{flag.removeprefix('--')}"
    metavar = {int: "N", float: "X", Path: "FILE"}.get(item, "TEXT")
    text = str(field.description)
    help_ = (
        f"{text.rstrip('.')}; repeatable." if several else text,
        way.note if way is not None else "",
        display.unset and f"[{display.unset}]",
    )
    return click.option(
        flag,
        name,
        type=kind,
        metavar=display.metavar or (None if choices or is_switch else metavar),
        is_flag=is_switch,
        multiple=several,
        required=default is ...,
        **({} if default is ... else {"default": default}),
        show_default=not display.unset,
        callback=(lambda _, __, pairs: dict(pairs) or None)
        if several and origin is Mapping
        else None,
        help=" ".join(filter(None, help_)),
        cls=GroupedOption,
        group=group,
    )


def flag_name(name: str, field: FieldInfo) -> str:
    """The name of an option on the command line; "" if it has none."""
    flag = display_of(field).flag
    return "" if flag is None else "--" + (flag or name).replace("_", "-")


def options_of(
    fields: Mapping[str, FieldInfo], *names: str, **defaults: Any
) -> Callable[[Command], Command]:
    """Gives a command the options that have a flag.

    names: of those to take; none: all. defaults: others than in Python.
    """
    chosen = names or [name for name, field in fields.items() if flag_name(name, field)]
    groups = {name: group for group, own in by_group(fields).items() for name in own}

    def decorate(command: Command) -> Command:
        for name in reversed(chosen):
            field = fields[name]
            usual = ... if field.is_required() else field.default
            command = option_of(name, field, defaults.get(name, usual), groups[name])(command)
        return command

    return decorate


def take(options: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Take these out of a command's options."""
    return {name: options.pop(name) for name in names if name in options}


def own_options(command: Command) -> Command:
    """Give a command the options that its parameters describe, checked before it runs."""
    own = options_of_function(command)

    @functools.wraps(command)
    def checked(*args: Any, **options: Any) -> None:
        checked = own(**take(options, own.model_fields))
        command(*args, **dict(checked), **options)

    return options_of(own.model_fields)(checked)
