"""Command-line options, made from their descriptions."""

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import click

from ov_specdec.cli.values import way_of
from ov_specdec.description import Described, describe

Command = Callable[..., None]


def option_of(each: Described, **settings: Any) -> Callable[[Command], Command]:
    """The click option of a described option. settings: of click."""
    way, metavar = way_of(each)
    several = way.is_repeated(each)
    flag = str(each.flag)
    if each.kinds == (bool,) and each.default is not False:
        flag = f"{flag}/--no-{flag.removeprefix('--')}"
    help_ = each.about.help
    help_ = f"{help_.rstrip('.')}; repeatable." if several else help_
    unset = each.about.unset and f"[{each.about.unset}]"
    return click.option(
        flag,
        each.name,
        type=way.type,
        metavar=metavar,
        is_flag=each.kinds == (bool,),
        multiple=several,
        required=each.is_required,
        default=None if each.is_required or each.default == () else each.default,
        show_default=not unset,
        callback=_as_mapping if several and Mapping in each.origins else None,
        help=" ".join(filter(None, (help_, way.note, unset))),
        **settings,
    )


def _as_mapping(_: click.Context, __: click.Parameter, pairs: Iterable[Any]) -> Any:
    return dict(pairs) or None


def options_of(
    described: Mapping[str, Described], *names: str, prefix: str = ""
) -> Callable[[Command], Command]:
    """Gives a command the options that have a flag.

    names: of those to take; none: all. prefix: of environment variables with their values, which
    are named as the options.
    """
    chosen = [described[name] for name in names or described if described[name].flag is not None]

    def decorate(command: Command) -> Command:
        for each in reversed(chosen):
            flag = str(each.flag)
            name = flag.replace("--", f"{prefix}_").replace("-", "_").upper()
            command = option_of(each, envvar=name if prefix else None)(command)
        return command

    return decorate


def own_options(command: Command) -> Command:
    """Give a command the options that its annotations describe, checked before it runs."""
    described = describe(command)

    @functools.wraps(command)
    def checked(*args: Any, **options: Any) -> None:
        for name, each in described.items():
            each.check(options[name])
        command(*args, **options)

    return options_of(described)(checked)
