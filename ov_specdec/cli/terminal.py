"""Common output of commands: help, errors in one line, progress on stderr, JSON on stdout."""

import functools
import json
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import groupby
from shlex import quote
from typing import Any

import click
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress

from ov_specdec.cli.app import EXAMPLES, USER_ERROR, discard_stdout, fail_to_write, say
from ov_specdec.errors import SpecdecError, cut
from ov_specdec.results.chunks import Chunk, ResultBuilder
from ov_specdec.results.parts import Arguments, CallBegin, CallEnd, Part, Reasoning

GROUPS = (
    *("Models", "Prompt", "Length and end of the output", "Sampling", "Speculation", "Speech"),
    *("Address", "Access", "Requests", "Replicas", "Weights", "Logits processors"),
    *("Structured output", "Tools and reasoning", "Log-probabilities", "KV cache", "Computation"),
    *("Output", "Options"),
)
"""Titles in the order of the help; the last one is of options that are described without one."""

MOST_USED = (
    *("main", "draft", "device", "prompt_file", "system", "max_new_tokens", "stop_strings"),
    *("temperature", "top_p", "top_k", "seed", "generation_config", "drafter"),
    *("num_assistant_tokens", "language", "task", "word_timestamps", "host", "port"),
    *("max_batch_size", "max_queue", "replicas", "weight_format", "draft_from_main"),
    *("form", "output", "as_json", "verbose", "", "debug", "help_all", "help"),
)
"""Options that `--help` shows, in this order, and in the place of "" those without a group."""

console = Console(stderr=True, highlight=False)


def print_json(content: Mapping[str, Any]) -> None:
    """Print one JSON object on stdout, escaped if the console cannot show all of it."""
    in_unicode = sys.stdout.encoding.lower().startswith("utf")
    click.echo(json.dumps(content, ensure_ascii=not in_unicode, indent=2))


class Transcript:
    """An answer as it is shown: reasoning, text, and each call in lines of their own."""

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


class GroupedOption(click.Option):
    """An option with the title of its group in the help."""

    def __init__(self, *args: Any, group: str, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.group = group or GROUPS[-1]


def show_help(context: click.Context, flag: click.Parameter, is_given: bool) -> None:
    """Print the help and exit. flag: --help or --help-all."""
    if not is_given or context.resilient_parsing:
        return
    command, formatter = context.command, context.make_formatter()
    options = [each for each in command.params if isinstance(each, click.Option)]
    if flag.name == "help":
        options = [o for o in options if o.name in MOST_USED or _group_of(o) == GROUPS[-1]]
    rows: list[tuple[str, str]] = []
    for group, members in groupby(sorted(options, key=_rank), _group_of):
        records = filter(None, (each.get_help_record(context) for each in members))
        rows += [("", ""), (f"{group}:", ""), *((f"  {term}", text) for term, text in records)]
    own = [line for line in EXAMPLES.splitlines() if line.split()[0] == command.name]
    if own:
        rows += [("", ""), ("Examples:", ""), *((f"  ov-specdec {line}", "") for line in own)]
    command.format_usage(context, formatter)
    command.format_help_text(context, formatter)
    formatter.write_dl(rows, col_max=20)
    click.echo(formatter.getvalue(), nl=False)
    context.exit()


def _group_of(option: click.Option) -> str:
    return getattr(option, "group", GROUPS[-1])


def _rank(option: click.Option) -> tuple[int, int]:
    name = option.name if option.name in MOST_USED else ""
    return GROUPS.index(_group_of(option)), MOST_USED.index(name)


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
