"""The commands by name, each imported when it is called; and what their errors come to."""

import io
import sys
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any, TextIO

import click

import ov_specdec
from ov_specdec.cli.interrupts import interrupts_end_the_process
from ov_specdec.cli.messages import INTERRUPTED, USER_ERROR, fail, fail_to_write, say

PACKAGE = Path(ov_specdec.__file__).parent

COMMANDS = {
    "generate": "Continue PROMPT: text on stdout as it comes, then a line of statistics on stderr.",
    "chat": "Talk with a chat model in the terminal; what is piped in is answered line by line.",
    "compare": "Continue PROMPT with plain and with speculative decoding; show both texts and "
    "times.",
    "batch": "Answer REQUESTS, a file in OpenAI's batch format, many at a time.",
    "transcribe": "Transcribe FILES (wav, flac, ogg, mp3), one after the other, with a Whisper.",
    "demo": "Show plain and speculative decoding side by side in a browser.",
    "serve": "Serve the models over HTTP, with OpenAI's interface and a page to try them on.",
    "tune": "Measure MAIN and DRAFT, or the embedded pair; say what pays, and write a profile.",
    "bench": "Measure plain decoding, this project's speculation and its peers on the same models.",
    "check": "Compare the tokenizers of MAIN and DRAFT; exit code 0 if they are the same, 1 if "
    "not.",
    "devices": "List OpenVINO's devices: name, capabilities, and the KV cache that --kv auto takes "
    "there.",
    "export": "Export a main and a draft model; with only one of --main and --draft, just that "
    "one.",
    "expand": "Expand MODEL, a Llama, to the cost of a larger one that computes the same.",
}
"""The first line of each command's help. Command X is `X` in the module `ov_specdec.cli.X`."""


class LazyCommands(click.Group):
    """The group of `COMMANDS`: its help and version import none of them."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """The names, those that a newcomer needs first."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The command called so, imported now; None if there is none."""
        if cmd_name not in COMMANDS:
            return None
        with interrupts_end_the_process():
            module = import_module(f"ov_specdec.cli.{cmd_name}")
        command: click.Command = getattr(module, cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the list of commands into the help."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that was asked for; on Ctrl-C, click itself would print a blank line."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            fail(INTERRUPTED)


@click.group(
    cls=LazyCommands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="ov-specdec", prog_name="ov-specdec")
def app() -> None:
    """Exact speculative decoding for OpenVINO."""


def run() -> None:
    """Run the command line, and exit."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A console that cannot show every character, such as Windows' cp1252, shows "?" for some.
        sys.stdout.reconfigure(errors="replace")
    with warnings.catch_warnings():
        _show_own_warnings_in_one_line()
        try:
            sys.exit(app(prog_name="ov-specdec", standalone_mode=False))
        except click.exceptions.NoArgsIsHelpError as error:
            click.echo(error.format_message(), err=True)
        except click.ClickException as error:
            context = getattr(error, "ctx", None)
            hint = f" (see {context.command_path} --help)" if context else ""
            fail(f"{error.format_message()}{hint}")
        except click.Abort:
            fail(INTERRUPTED)
        except OSError as error:
            fail_to_write(error)
        sys.exit(USER_ERROR)


def _show_own_warnings_in_one_line() -> None:
    """Until the warnings' state is restored; those of other packages look as always."""
    usual = warnings.showwarning

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if PACKAGE in Path(filename).parents:
            say(f"warning: {message}")
        else:
            usual(message, category, filename, lineno, file, line)

    warnings.showwarning = show
