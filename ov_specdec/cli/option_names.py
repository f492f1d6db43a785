"""Translate option names in error messages to those of the command line."""

from collections.abc import Iterable, Mapping
from shlex import quote

import click

from ov_specdec.errors import Option, SpecdecError

MAX_SHOWN = 80
"""Maximum characters of a value in a message."""


def in_option_names(error: SpecdecError, parameters: Iterable[click.Parameter]) -> str:
    """An error's message with each option as typed on the command line.

    parameters: of the command that ran. `max_new_tokens=-1` becomes `--max-new-tokens -1`,
    `do_sample=False` becomes `--no-do-sample`; options that the command lacks stay unchanged.
    """
    options = {str(p.name): p for p in parameters if isinstance(p, click.Option)}

    def typed(named: Option) -> str:
        option = options.get(named.name)
        return str(named) if option is None else _typed(option, named.value)

    return error.render(typed)


def flag_of(option: click.Option) -> str:
    """The longest of an option's names, with its hyphens."""
    return max(option.opts, key=len)


def _typed(option: click.Option, value: object) -> str:
    """An option with its value, as on a command line."""
    if value is ...:
        return flag_of(option)
    if option.is_flag and value is False:
        return max(option.secondary_opts, key=len, default=f"no {flag_of(option)}")
    if option.is_flag:
        return flag_of(option)
    several = isinstance(value, tuple | list | Mapping) and option.multiple
    values = _parts(value) if several else [",".join(_parts(value))]
    return " ".join(f"{flag_of(option)} {_quoted(each)}" for each in values) or flag_of(option)


def _parts(value: object) -> list[str]:
    """A value, or each of several, without quotes."""
    if isinstance(value, Mapping):
        return [f"{key}={each}" for key, each in value.items()]
    if isinstance(value, tuple | list):
        return [",".join(_parts(each)) for each in value]
    return [str(value).lower() if isinstance(value, bool) else str(value)]


def _quoted(text: str) -> str:
    """A text quoted for the shell, or as a Python literal if it cannot be typed."""
    text = text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 3]}..."
    return quote(text) if text.isprintable() else repr(text)
