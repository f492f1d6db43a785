"""Common output of commands: errors in one line, progress on stderr, JSON on stdout."""

import functools
import json
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import Any

import click
from rich.console import Console

from ov_specdec.cli.messages import discard_stdout, fail, fail_to_write
from ov_specdec.cli.option_names import in_option_names
from ov_specdec.errors import SpecdecError

console = Console(stderr=True, highlight=False)


def print_json(content: Mapping[str, Any]) -> None:
    """Print one JSON object on stdout, escaped if the console cannot show all of it."""
    in_unicode = sys.stdout.encoding.lower().startswith("utf")
    click.echo(json.dumps(content, ensure_ascii=not in_unicode, indent=2))


def with_errors(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the option --debug, and print its errors in one line."""

    @click.option("--debug", is_flag=True, help="Show the traceback of an error.")
    @functools.wraps(command)
    def guarded(*args: Any, debug: bool, **kwargs: Any) -> None:
        try:
            command(*args, **kwargs)
        except BrokenPipeError:
            discard_stdout()  # the reader has gone, as in `| head`
        except (SpecdecError, OSError) as error:
            if debug:
                traceback.print_exc()
            if isinstance(error, OSError):
                fail_to_write(error)
            fail(in_option_names(error, click.get_current_context().command.params))

    return guarded
