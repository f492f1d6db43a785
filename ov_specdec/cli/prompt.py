"""Reads a prompt from an argument, a file or stdin."""

import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from shlex import quote

from ov_specdec.cli.messages import say
from ov_specdec.errors import OptionError


def read_prompt(given: Sequence[str], file: str | None) -> str:
    """The prompt from an argument or a file ("-" for stdin), else from a pipe on stdin.

    Raises `OptionError` for none or two prompts, and for one that is empty or not UTF-8.
    """
    if given and file is not None:
        raise OptionError(f"give a PROMPT or --prompt-file '{file}', not both")
    if len(given) > 1:
        raise OptionError(
            f"the prompt is {len(given)} arguments: put it into quotes, as in "
            f"{quote(' '.join(given))}"
        )
    if given:
        _hint_at_file(given[0])
        return _checked(given[0])
    if file is None and (sys.stdin is None or sys.stdin.isatty()):
        raise OptionError("there is no prompt: give a PROMPT or --prompt-file, or pipe text in")
    name = "stdin" if file in (None, "-") else f"--prompt-file '{file}'"
    try:
        text = _read(file)
    except OSError as error:
        raise OptionError(f"{name} cannot be read: {error.strerror}; name a text file") from error
    except UnicodeDecodeError as error:
        raise OptionError(f"{name} cannot be read as text: {error}; give UTF-8") from error
    if not text:
        raise OptionError(f"{name} is empty: give at least one token of text, or a PROMPT")
    return text


def _read(file: str | None) -> str:
    if file is None or file == "-":
        # Newlines as in a text file.
        return io.StringIO(sys.stdin.buffer.read().decode(), newline=None).read()
    return Path(file).read_text(encoding="utf-8")


def _hint_at_file(prompt: str) -> None:
    """Say that a prompt is the name of a file, which is not read."""
    if os.path.isfile(prompt):  # noqa: PTH113 - a Path raises errors for long or odd texts
        say(f"the prompt is the name of a file: to read it, give --prompt-file {quote(prompt)}")


def _checked(prompt: str) -> str:
    """An argument as text: Python passes bytes that are not UTF-8 as lone surrogates."""
    if not prompt:
        raise OptionError("the prompt is empty: give at least one token of text")
    try:
        prompt.encode()
    except UnicodeEncodeError as error:
        raise OptionError(
            f"the prompt is not text at character {error.start + 1}: give it as UTF-8"
        ) from error
    return prompt
