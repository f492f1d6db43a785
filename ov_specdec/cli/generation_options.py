"""Command-line options of a generation, made from their descriptions."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_origin

import click

from ov_specdec.cli.escapes import unescape
from ov_specdec.description import Described, describe
from ov_specdec.options import GenerationOptions


def _ids(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(",") if text)
    except ValueError as error:
        raise click.BadParameter(f"'{text}' must be token ids with commas between") from error


def _bias(text: str) -> tuple[int, float]:
    token, _, bias = text.partition("=")
    try:
        return int(token), float(bias)
    except ValueError as error:
        raise click.BadParameter(f"'{text}' must have the form ID=BIAS") from error


def _length(text: str) -> int | str:
    try:
        return text if text == "auto" else int(text)
    except ValueError as error:
        raise click.BadParameter(f"'{text}' must be auto or a whole number") from error


def _threshold(text: str) -> float | None:
    try:
        return None if text == "none" else float(text)
    except ValueError as error:
        raise click.BadParameter(f"'{text}' must be a number or none") from error


def _stop(text: str) -> str:
    """A stop string with its escapes replaced."""
    try:
        return unescape(text)
    except ValueError as error:
        raise click.BadParameter(f"{text!r} cannot be read: {error}") from error


def _object(text: str) -> dict[str, Any]:
    """A JSON object from the command line."""
    try:
        content = json.loads(text)
    except ValueError as error:
        raise click.BadParameter(f"'{text}' is not valid JSON: {error}") from error
    if not isinstance(content, dict):
        raise click.BadParameter(f"'{text}' must be a JSON object")
    return content


def _text(file: str) -> str:
    """The text in a file."""
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise click.BadParameter(f"'{file}' cannot be read as text: {error}") from error


def _list(file: str) -> list[Any]:
    """The list in a JSON file."""
    try:
        content = json.loads(Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise click.BadParameter(f"'{file}' cannot be read as JSON: {error}") from error
    if not isinstance(content, list):
        raise click.BadParameter(f"'{file}' must hold a JSON list of schemas")
    return content


@dataclass(frozen=True)
class Way:
    """How a value is typed. type: parses it. whole: parses a list in one argument."""

    type: Callable[[str], Any] | click.ParamType[Any]
    whole: bool = False
    note: str = ""

    def is_repeated(self, each: Described) -> bool:
        """Whether the option is repeated for several values."""
        origins = {get_origin(kind) for kind in each.kinds}
        if self.whole:
            return get_origin(each.item) is Sequence
        return bool(origins & {Sequence, Mapping})


Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

WAYS = {
    "auto|N": Way(_length),
    "FILE": Way(_text),
    "ID,ID,...": Way(_ids, whole=True),
    "ID=BIAS": Way(_bias),
    "JSON": Way(_object, whole=True),
    "JSON-FILE": Way(_list, whole=True),
    "S": Way(_stop, note=r"Escapes: \n \t \r \\ \xNN \uNNNN."),
    "X|none": Way(_threshold),
}
"""By metavar; a number is typed as N or X."""


def option_of(name: str, default: Any = None, options: type = GenerationOptions) -> Decorator:
    """The click option of a described option. default: the command's own."""
    each = describe(options)[name]
    default = each.default if default is None else default
    way, metavar = _way_of(each)
    several = way.is_repeated(each)
    flag = str(each.flag)
    if bool in each.kinds and default is not False:
        flag = f"{flag}/--no-{flag.removeprefix('--')}"
    help_ = each.about.help
    help_ = f"{help_.rstrip('.')}; repeatable." if several else help_
    unset = each.about.unset and f"[{each.about.unset}]"
    return click.option(
        flag,
        name,
        type=way.type,
        metavar=metavar,
        is_flag=bool in each.kinds,
        multiple=several,
        default=None if default == () else default,
        show_default=default is not None and default is not False and default != (),
        help=" ".join(filter(None, (help_, way.note, unset))),
    )


def _way_of(each: Described) -> tuple[Way, str | None]:
    """The way to type an option's value, and its metavar."""
    kind = each.kinds[0]
    if kind is bool:
        return Way(click.BOOL), None
    if each.choices and not each.about.metavar:
        return Way(click.Choice(each.choices)), None
    metavar = each.about.metavar or {int: "N", float: "X"}.get(kind, "TEXT")
    return WAYS.get(metavar, Way(each.item or kind)), metavar


def options_of(names: Iterable[str], options: type = GenerationOptions) -> tuple[Decorator, ...]:
    """The click options of all that have a flag."""
    described = describe(options)
    return tuple(option_of(n, options=options) for n in names if described[n].flag is not None)


def length_option(default: int | None = None) -> Decorator:
    """The option --max-new-tokens, with a default of the command."""
    return option_of("max_new_tokens", default)


LOGPROBS = ("logprobs", "logprobs_mode", "prompt_logprobs")
"""Options of the command that can show log-probabilities."""

OF_SOME = ("max_new_tokens", "apply_chat_template", "cache_prompt", *LOGPROBS)
"""Options that not all generating commands have, or with other defaults."""

GENERATION_OPTIONS = options_of(n for n in describe(GenerationOptions) if n not in OF_SOME)
