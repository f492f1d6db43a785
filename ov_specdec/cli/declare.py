"""Commands and their options, made of functions and of options of the package."""

import functools
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import click
from click.core import ParameterSource
from pydantic.fields import FieldInfo

from ov_specdec.cli.terminal import GroupedOption, with_errors
from ov_specdec.errors import ModelError, OptionError, shorten
from ov_specdec.files import ENCODING
from ov_specdec.models.locate import check_place
from ov_specdec.options.model import by_group, display_of, kinds_of, options_of_function

Command = Callable[..., None]

MODELS = ("main", "draft")


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
    with click.open_file(file, encoding=ENCODING) as stream:
        return str(stream.read())


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
    unset = "" if default else display.unset
    way = WAYS.get(display.metavar)
    origin, item = get_origin(kinds[0]), kinds[0]
    several = origin in (Sequence, Mapping)
    if origin is Sequence:
        (item, *_) = kinds_of(get_args(kinds[0])[0])
    if way is not None and way.whole:  # a list of lists may still be repeated
        several = get_origin(item) is Sequence
    is_switch = kinds == [bool]
    kind, metavar = _type_of(item, kinds, way), display.metavar or None
    if metavar is None and not is_switch and not isinstance(kind, click.Choice):
        metavar = {int: "N", float: "X", Path: "FILE"}.get(item, "TEXT")
    flag = flag_name(name, field)
    if is_switch and default is not False:
        flag = f"{flag}/--no-{flag.removeprefix('--')}"
    text = str(field.description)
    text = f"{text.rstrip('.')}; repeatable." if several else text
    help_ = (text, way.note if way is not None else "", unset and f"[{unset}]")
    return click.option(
        flag,
        name,
        type=kind,
        metavar=metavar,
        is_flag=is_switch,
        multiple=several,
        required=default is ...,
        **({} if default is ... else {"default": default}),
        show_default=not unset,
        callback=_as_mapping if several and origin is Mapping else None,
        help=" ".join(filter(None, help_)),
        cls=GroupedOption,
        group=group,
    )


def _as_mapping(_: object, __: object, pairs: Iterable[tuple[str, Any]]) -> dict[str, Any] | None:
    return dict(pairs) or None


def _type_of(item: Any, kinds: Sequence[Any], way: Way | None) -> Any:
    """The type that click reads a value with."""
    choices = [each for kind in kinds if get_origin(kind) is Literal for each in get_args(kind)]
    if way is not None or not choices:
        return way or item
    switch = (True, False) if bool in kinds else ()
    return click.Choice((*choices, *switch), case_sensitive=not switch)


def flag_name(name: str, field: FieldInfo) -> str:
    """The name of an option on the command line; "" if it has none."""
    flag = display_of(field).flag
    return "" if flag is None else "--" + (flag or name).replace("_", "-")


def options_of(
    fields: Mapping[str, FieldInfo], *names: str, without: Sequence[str] = (), **defaults: Any
) -> Callable[[Command], Command]:
    """Gives a command the options that have a flag.

    names: of those to take; none: all but `without`. defaults: others than in Python.
    """
    chosen = names or [n for n in fields if flag_name(n, fields[n]) and n not in without]
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


def typed(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of the current command that the user gave; the others have their defaults."""
    source = click.get_current_context().get_parameter_source
    return {k: v for k, v in options.items() if source(k) is not ParameterSource.DEFAULT}


def own_options(command: Command) -> Command:
    """Give a command the options that its parameters describe, checked before it runs."""
    own = options_of_function(command)

    @functools.wraps(command)
    def checked(*args: Any, **options: Any) -> None:
        checked = own(**take(options, own.model_fields))
        command(*args, **dict(checked), **options)

    return options_of(own.model_fields)(checked)


def command(
    usage: str, *options: Callable[[Command], Command]
) -> Callable[[Command], click.Command]:
    """Makes a command of a function with `option`s.

    usage: of its arguments, such as "[MAIN] [PROMPT]". First come models, which may be named there
    rather than by option, then others, which the function gets as `arguments`. options: give it
    those of others.
    """
    roles = [role for role in MODELS if f"[{role.upper()}]" in usage.split()]
    own = usage.split()[len(roles) :]

    def decorate(function: Command) -> click.Command:
        made = own_options(function)
        for add in reversed(options):
            made = add(made)

        @click.command()
        @with_errors
        @click.argument("arguments", nargs=-1, metavar=usage)
        @functools.wraps(made)
        def named(arguments: tuple[str, ...], **options: Any) -> None:
            count = int(_has_model(arguments, options["main"])) if own else len(roles)
            _take_models(roles, arguments[:count], options)
            if own:
                options["arguments"] = arguments[count:]
            elif arguments[count:]:
                raise click.UsageError(f"Got unexpected extra argument ({arguments[count]})")
            if own and not own[0].startswith("[") and not options["arguments"]:
                raise click.UsageError(f"Missing argument '{own[0]}'.")
            made(**options)

        return named

    return decorate


def _take_models(roles: Sequence[str], names: Sequence[str], options: dict[str, Any]) -> None:
    """Take models that are named as arguments for those of options."""
    context = click.get_current_context()
    for role, name in zip(roles, names, strict=False):
        if context.get_parameter_source(role) is ParameterSource.COMMANDLINE:
            problem = f"{role.upper()} is '{name}', and {{{role}}}"
            raise OptionError(f"{problem}: give it once", **{role: options[role]})
        options[role] = name


def _has_model(arguments: Sequence[str], main: str | None) -> bool:
    """Whether the first argument is the model: it is a model's folder, or the first of several."""
    if arguments and os.path.isfile(f"{arguments[0]}/config.json"):  # noqa: PTH113 - may be any text
        return True
    if main is not None or len(arguments) < 2:
        return False
    try:
        check_place(arguments[0])
    except ModelError as error:
        rule = "the first of several arguments is the model, and one with spaces needs quotes"
        raise ModelError(f"{error} ({rule}: {shorten(' '.join(arguments))})") from error
    return True
