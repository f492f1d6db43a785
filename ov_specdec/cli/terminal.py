"""Common output of commands: errors in one line, progress on stderr, JSON on stdout."""

import functools
import json
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from shlex import quote
from typing import Any

import click
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress

from ov_specdec.cli.app import USER_ERROR, discard_stdout, fail_to_write, say
from ov_specdec.cli.help import show_help
from ov_specdec.errors import SpecdecError, cut
from ov_specdec.results.chunks import Chunk, ResultBuilder
from ov_specdec.results.parts import Arguments, CallBegin, CallEnd, Part, Reasoning

console = Console(stderr=True, highlight=False)


def print_json(content: Mapping[str, Any]) -> None:
    """Print one JSON object on stdout, escaped if the console cannot show all of it."""
    in_unicode = sys.stdout.encoding.lower().startswith("utf")
    click.echo(json.dumps(content, ensure_ascii=not in_unicode, indent=2))


class Transcript:
    """An answer as it is shown: reasoning, text, and each call in lines of their own.

    output: what was shown so far.
    """

    def __init__(self) -> None:
        self.output = ResultBuilder()
        self._last: type[Part] | None = None

    def pieces(self, chunk: Chunk) -> Iterator[tuple[str, bool]]:
        """The texts of a chunk, and whether each is reasoning."""
        for part in chunk.joined_parts:
            if self._last not in (None, type(part)) and not isinstance(part, Arguments | CallEnd):
                yield "\n", self._last is Reasoning
            self._last = type(part)
            text = f"{part.name} " if isinstance(part, CallBegin) else getattr(part, "text", "")
            yield text, self._last is Reasoning

    def show(self, chunk: Chunk, colour: tuple[int, ...] | None = None) -> None:
        """Print the next chunk, reasoning dim on stderr."""
        self.output.add(chunk)
        for text, is_reasoning in self.pieces(chunk):
            dim = is_reasoning or None
            click.secho(text, nl=False, err=is_reasoning, dim=dim, fg=colour)


@contextmanager
def progress(title: str, total: float) -> Iterator[Callable[..., None]]:
    """A progress bar on stderr, if that is a terminal; yields rich's `update` of its task."""
    columns = (*Progress.get_default_columns(), MofNCompleteColumn())
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        yield functools.partial(bar.update, bar.add_task(title, total=total))


def with_errors(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command --debug, --help and --help-all, and print its errors in one line."""

    @click.option("--debug", is_flag=True, help="Show the traceback of an error.")
    @click.help_option("--help-all", callback=show_help, help="Show all options.")
    @click.help_option("-h", "--help", callback=show_help)
    @functools.wraps(command)
    def guarded(*args: Any, debug: bool, **kwargs: Any) -> None:
        try:
            command(*args, **kwargs)
        except BrokenPipeError:
            discard_stdout()  # the reader has gone, as in `| head`
        except SpecdecError as error:
            show_error(error)
            sys.exit(USER_ERROR)
        except OSError as error:
            if debug:
                traceback.print_exc()
            fail_to_write(error)

    return guarded


def show_error(error: SpecdecError) -> None:
    """Show an error of the current command in one line; with --debug, its traceback."""
    context = click.get_current_context()
    if context.params["debug"]:
        traceback.print_exception(error)
    say(f"error: {in_option_names(error, context.command.params)}")


def in_option_names(error: SpecdecError, parameters: Iterable[click.Parameter]) -> str:
    """An error's message with each option as typed on the command line.

    parameters: of the command that ran. `max_new_tokens=-1` becomes `--max-new-tokens -1`,
    `do_sample=False` becomes `--no-do-sample`; options that the command lacks stay unchanged.
    """
    options = {str(p.name): p for p in parameters if isinstance(p, click.Option)}
    return error.render(
        lambda own: _typed(options[own.name], own.value) if own.name in options else str(own)
    )


def flag_of(option: click.Parameter) -> str:
    """The longest of an option's names, with its hyphens."""
    return max(option.opts, key=len)


def by_flag(command: click.Command) -> dict[str, click.Option]:
    """The options of a command, by their flags without hyphens in front."""
    options = [each for each in command.params if isinstance(each, click.Option)]
    return {flag_of(each).removeprefix("--"): each for each in options}


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
    # Quoted for the shell, or as a Python literal if it cannot be typed.
    quoted = [quote(text) if text.isprintable() else repr(text) for text in map(cut, values)]
    return " ".join(f"{flag_of(option)} {text}" for text in quoted) or flag_of(option)


def _parts(value: object) -> list[str]:
    """A value, or each of several, without quotes."""
    if isinstance(value, Mapping):
        return [f"{key}={each}" for key, each in value.items()]
    if isinstance(value, tuple | list):
        return [",".join(_parts(each)) for each in value]
    return [str(value).lower() if isinstance(value, bool) else str(value)]
