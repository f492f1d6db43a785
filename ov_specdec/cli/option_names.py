"""Messages of the Python interface in the words of the command line."""

import ast
import re
from collections.abc import Iterable

import click

from ov_specdec.errors import OptionError, SpecdecError

QUOTED = r"'[^']*'|\"[^\"]*\""
INSIDE = rf"(?:{QUOTED}|[^'\"()\[\]{{}}])*"
VALUE = rf"{QUOTED}|\({INSIDE}\)|\[{INSIDE}\]|{{{INSIDE}}}|[^\s,:;)]+"
PLAIN = re.compile(r"[\w./@%+=-]+")


def in_option_names(error: SpecdecError, parameters: Iterable[click.Parameter]) -> str:
    """An error's message with each `name=value` and each name as the user would type it.

    parameters: those of the command that ran. `max_new_tokens=-1` becomes `--max-new-tokens -1`,
    `do_sample=False` `--no-do-sample`; what the command has no option for stays as it is.
    """
    options = {str(p.name): p for p in parameters if isinstance(p, click.Option)}
    names = "|".join(options)

    def typed(match: re.Match[str]) -> str:
        name, key, value = match.groups()
        return _typed(options[name], value if key is None else f"{key}={value}")

    message = re.sub(rf"(?<![-\w])({names})(?:\[(\w+)\])?=({VALUE})", typed, str(error))
    # Other errors speak of files, in which `eos_token_id` may be a key.
    if not isinstance(error, OptionError):
        return message

    def flags(match: re.Match[str]) -> str:
        # A word by itself may be plain English; several options, or one with "_", are not.
        if not re.search(r"[_ ]", match[0]):
            return match[0]
        return re.sub(r"\b(?!or\b)\w+", lambda name: flag_of(options[name[0]]), match[0])

    listed = rf"(?:{names})(?:, (?:{names}))*(?: or (?:{names}))?"
    return re.sub(rf"(?<![-\w])(?:{listed})(?![-\w])", flags, message)


def flag_of(option: click.Option) -> str:
    """The longest of an option's names, with its hyphens."""
    return max(option.opts, key=len)


def _typed(option: click.Option, value: str) -> str:
    """An option with the value that a message shows, as on a command line."""
    if option.is_flag:
        names = option.secondary_opts if value == "False" else option.opts
        return max(names, key=len) if names else f"no {flag_of(option)}"
    return " ".join(f"{flag_of(option)} {part}" for part in _parts(value))


def _parts(value: str) -> list[str]:
    """A value that a message shows, or several in brackets, each as one would type it."""
    try:
        content = ast.literal_eval(value) if value[0] in "([{" else None
    except (SyntaxError, ValueError):
        content = None
    if isinstance(content, dict):
        content = [f"{key}={text}" for key, text in content.items()]
    if isinstance(content, tuple | list):
        texts = [str(item) for item in content] or [""]
        return [text if PLAIN.fullmatch(text) else repr(text) for text in texts]
    inner = value[1:-1] if value[0] in "'\"" else value
    return [inner if PLAIN.fullmatch(inner) else value]
