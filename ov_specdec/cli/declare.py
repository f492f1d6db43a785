"""Command-line options, made from their descriptions."""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_origin

import click

from ov_specdec.cli.values import WAYS
from ov_specdec.description import Described, describe

Command = Callable[..., None]


def option_of(each: Described) -> Callable[[Command], Command]:
    """The click option of a described option."""
    about, way = each.about, WAYS.get(each.about.metavar)
    is_switch = each.kinds == (bool,)
    several = bool(each.origins & {Sequence, Mapping})
    if way is not None and way.whole:  # a list of lists may still be repeated
        several = get_origin(each.item) is Sequence
    flag = str(each.flag)
    if is_switch and each.default is not False:
        flag = f"{flag}/--no-{flag.removeprefix('--')}"
    help_ = f"{about.help.rstrip('.')}; repeatable." if several else about.help
    note = way.note if way is not None else ""
    unset = about.unset and f"[{about.unset}]"
    return click.option(
        flag,
        each.name,
        type=way or _plain_type(each),
        metavar=_metavar(each),
        is_flag=is_switch,
        multiple=several,
        required=each.is_required,
        **({} if each.is_required else {"default": each.default}),
        show_default=not unset,
        callback=_as_mapping if several and Mapping in each.origins else None,
        help=" ".join(filter(None, (help_, note, unset))),
    )


def _plain_type(each: Described) -> Any:
    if each.choices:
        switch = (True, False) if bool in each.kinds else ()
        return click.Choice((*each.choices, *switch), case_sensitive=not switch)
    return each.item or each.kinds[0]


def _metavar(each: Described) -> str | None:
    if each.about.metavar or each.choices or each.kinds == (bool,):
        return each.about.metavar or None
    return {int: "N", float: "X", Path: "FILE"}.get(each.item or each.kinds[0], "TEXT")


def _as_mapping(_: click.Context, __: click.Parameter, pairs: Iterable[Any]) -> Any:
    return dict(pairs) or None


def options_of(described: Mapping[str, Described], *names: str) -> Callable[[Command], Command]:
    """Gives a command the options that have a flag. names: of those to take; none: all."""
    chosen = [described[name] for name in names or described if described[name].flag is not None]

    def decorate(command: Command) -> Command:
        for each in reversed(chosen):
            command = option_of(each)(command)
        return command

    return decorate


def take(options: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Take these out of a command's options."""
    return {name: options.pop(name) for name in names if name in options}


def own_options(command: Command) -> Command:
    """Give a command the options that its annotations describe, checked before it runs.

    The help shows them where this decorator stands among those of other options.
    """
    described = describe(command)

    @functools.wraps(command)
    def checked(*args: Any, **options: Any) -> None:
        for name, each in described.items():
            each.check(options[name])
        command(*args, **options)

    return options_of(described)(checked)
