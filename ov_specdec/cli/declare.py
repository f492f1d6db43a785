"""Command-line options, made from options of the package."""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import click
from pydantic.fields import FieldInfo

from ov_specdec.cli.help import GroupedOption
from ov_specdec.cli.values import WAYS
from ov_specdec.options.model import by_group, display_of, kinds_of, options_of_function

Command = Callable[..., None]


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
