"""What all commands share: errors in one line, progress on stderr, JSON on stdout."""

import functools
import json
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import click
from rich.console import Console

from ov_specdec.errors import SpecdecError

USER_ERROR = 2
"""Exit code after an error that the user can remedy."""

console = Console(stderr=True, highlight=False)


def fail(message: str) -> NoReturn:
    """Print an error in one line, and exit."""
    click.echo(f"error: {' '.join(message.split())}", err=True)
    sys.exit(USER_ERROR)


def print_json(content: Mapping[str, Any]) -> None:
    """Print one JSON object on stdout."""
    click.echo(json.dumps(content, ensure_ascii=False, indent=2))


def with_errors(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the option --debug, and turn what goes wrong in it into one line."""

    @click.option("--debug", is_flag=True, help="Show the traceback of an error.")
    @functools.wraps(command)
    def guarded(*args: Any, debug: bool, **kwargs: Any) -> None:
        try:
            command(*args, **kwargs)
        except SpecdecError as error:
            if debug:
                traceback.print_exc()
            fail(str(error))
        except BrokenPipeError:
            # The reader has gone, as in `| head`. Python would complain again at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

    return guarded
