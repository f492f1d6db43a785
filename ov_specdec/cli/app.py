"""The commands by name, imported on use; and the handling of their errors."""

import ast
import errno
import io
import os
import sys
import warnings
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from itertools import takewhile
from pkgutil import get_data
from typing import Any, NoReturn

import click

from ov_specdec.errors import suggest
from ov_specdec.options.foreign_names import HINTS

NAMES = (
    *("generate", "chat", "compare", "batch", "transcribe", "demo", "serve", "tune", "bench"),
    *("check", "devices", "export"),
)
COMMANDS = {name: name for name in NAMES} | {"devices": "check"}
"""The module of each command, in the order in which a newcomer needs them."""

EXAMPLES = """\
generate "def fibonacci(n):" --max-new-tokens 128
generate big-model "Why is the sky blue?" --draft small-model
generate big-model --prompt-file report.txt --drafter suffix
chat big-model small-model
chat big-model --system "Answer in one sentence." --temperature 0.7
chat big-model < questions.txt
compare "def quicksort(xs):"
compare big-model "Why is the sky blue?" --draft small-model
compare big-model --prompt-file report.txt --drafter suffix --repeat 5
batch requests.jsonl --output results.jsonl
batch big-model requests.jsonl --draft small-model --output results.jsonl
batch big-model requests.jsonl --output results.jsonl --max-batch-size 4
transcribe whisper-base talk.mp3
transcribe whisper-base talk.mp3 --draft whisper-tiny --format srt
transcribe whisper-base a.mp3 b.mp3 --format vtt --word-timestamps --output texts
demo --port 8000
demo big-model small-model
demo whisper-base --draft whisper-tiny
serve big-model small-model --port 8000
serve big-model --host 0.0.0.0 --api-key-file keys.txt
serve big-model --replicas 2
tune big-model small-model
tune big-model small-model --other-draft big-model-int4 --seconds 300
tune big-model --other-draft big-model-int4
bench --quick
bench big-model small-model --concurrency 1,8 --output results.json
bench big-model --methods suffix,prompt-lookup --prompts quoting
check big-model small-model
check big-model --device GPU
check
devices
devices big-model
export Qwen/Qwen2.5-7B-Instruct Qwen/Qwen2.5-0.5B-Instruct --weight-format int4
export Qwen/Qwen2.5-7B-Instruct --weight-format int8 --draft-from-main int4
export openai/whisper-base openai/whisper-tiny --weight-format int8
"""
"""Shown at the end of the help of the command that each line begins with."""

LIKE = 0.7
"""Minimum similarity of options: below it they have little but "--" in common."""

USER_ERROR = 2
"""Exit code after an error that the user can remedy."""

INTERRUPTED = 130
"""Exit code after Ctrl-C, as for any process that SIGINT ends."""

OUTPUT_IS_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Errors of the operating system for a full output."""

SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
"""Context settings of all commands."""


class LazyCommands(click.Group):
    """A group whose help and version import none of its commands.

    package: of the commands. modules: by their names; the function of `x-y` is `x_y`.
    """

    def __init__(
        self, *args: Any, package: str, modules: Mapping[str, str], **settings: Any
    ) -> None:
        super().__init__(*args, **settings)
        self._package, self._modules = package, modules

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """The names, in their order."""
        return list(self._modules)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:  # noqa: ARG002
        """The command with this name, imported now."""
        module = import_module(f"{self._package}.{self._modules[cmd_name]}")
        command: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return command

    def first_line(self, name: str) -> str:
        """The first line of a command's help, read from its source."""
        file = f"{self._modules[name].replace('.', '/')}.py"
        functions = (
            each
            for each in ast.parse(get_data(self._package, file) or b"").body
            if isinstance(each, ast.FunctionDef) and each.name == name.replace("-", "_")
        )
        return (ast.get_docstring(next(functions)) or "").partition("\n")[0]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str, click.Command, list[str]]:
        """As in click, but errors suggest what to type instead."""
        name, *rest = args
        if name not in self._modules:
            hint = suggest(name, self._modules, f"there are: {', '.join(self._modules)}")
            ctx.fail(f"there is no command '{name}': {hint}")
        command = self.get_command(ctx, name)
        for word in takewhile("--".__ne__, rest):
            # click would read -ngl letter by letter, as -n gl.
            if word in HINTS and len(word) > 2 and word[0] == "-" != word[1]:
                raise click.NoSuchOption(word, ctx=click.Context(command, ctx, name))
        return name, command, rest

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the list of commands to the help."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, self.first_line(name)) for name in self._modules])

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; on Ctrl-C, click itself would print a blank line."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            end_interrupted()


@click.group(
    cls=LazyCommands, package="ov_specdec.cli", modules=COMMANDS, context_settings=SETTINGS
)
@click.version_option(package_name="ov-specdec", prog_name="ov-specdec")
def app() -> None:
    """Exact speculative decoding for OpenVINO."""


def run(commands: click.Group = app, name: str = "ov-specdec") -> None:
    """Run a command line and exit. name: of the program."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A console without UTF-8, such as Windows' cp1252, shows "?" for other characters.
        sys.stdout.reconfigure(errors="replace")
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_, **__: say(f"warning: {message}")
        try:
            sys.exit(commands(prog_name=name, standalone_mode=False))
        except click.exceptions.NoArgsIsHelpError as error:
            click.echo(error.format_message(), err=True)
        except click.ClickException as error:
            context = getattr(error, "ctx", None)
            hint = f" (see {context.command_path} --help)" if context else ""
            fail(f"{explain(error)}{hint}")
        except click.Abort:
            end_interrupted()
        except OSError as error:
            fail_to_write(error)
        sys.exit(USER_ERROR)


def fail(message: str) -> NoReturn:
    """Print an error in one line, and exit."""
    say(f"error: {message}")
    sys.exit(USER_ERROR)


def end_interrupted(message: str = "interrupted") -> NoReturn:
    """Print one line about Ctrl-C, and exit."""
    say(message)
    sys.exit(INTERRUPTED)


def say(message: str) -> None:
    """Print one line on stderr."""
    with suppress(OSError):  # a full disk behind stderr: only the exit code remains
        print(" ".join(message.split()), file=sys.stderr, flush=True)  # noqa: T201


def fail_to_write(error: OSError) -> NoReturn:
    """Exit with one line if a device is full or a file cannot be used; raise other errors."""
    if error.filename is not None:
        fail(f"'{error.filename}' cannot be used ({error.strerror}): give another path")
    if error.errno not in OUTPUT_IS_FULL:
        raise error
    discard_stdout()
    fail(f"the output cannot be written ({error.strerror}): free space, or write it elsewhere")


def discard_stdout() -> None:
    """Drop unprinted output: otherwise Python would report the same error again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def explain(error: click.ClickException) -> str:
    """The message of an error of click's, with what to type in place of an unknown option."""
    if not isinstance(error, click.NoSuchOption) or error.ctx is None:
        return error.format_message()
    typed, command = error.option_name, error.ctx.command
    if isinstance(command, click.Group):
        return f"{typed} is no option of {error.ctx.command_path}: give a command before it"
    options = [each for each in command.params if isinstance(each, click.Option)]
    flags = {str(each.name): max(each.opts, key=len) for each in options}
    name = typed.removeprefix("--").replace("-", "_") if typed.startswith("--") else typed
    meant = HINTS.get(typed) or HINTS.get(name) or name
    if " " in meant:
        hint = meant
    elif meant in flags:
        hint = f"give {flags[meant]}"
    else:
        known = [flag for each in options for flag in (*each.opts, *each.secondary_opts)]
        hint = suggest(typed.replace("_", "-"), known, "", most=2, cutoff=LIKE)
    return f"there is no option {typed}" + (f": {hint}" if hint else "")
