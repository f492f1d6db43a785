"""The chat's terminal: answers as they arrive, broken between words, and the lines of the user."""

import io
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import chain

import click
from prompt_toolkit import PromptSession
from prompt_toolkit.completion import Completer, NestedCompleter, PathCompleter, WordCompleter
from prompt_toolkit.completion import merge_completers as merge
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.output import create_output
from prompt_toolkit.shortcuts import CompleteStyle
from rich.console import Console
from rich.control import Control
from rich.segment import ControlType, Segment, Segments
from rich.style import Style
from rich.text import Text

from ov_specdec.cli.chat.conversation import COMMANDS, Begin
from ov_specdec.cli.terminal import console
from ov_specdec.errors import OptionError
from ov_specdec.generation.text_generator import GenerationStream
from ov_specdec.records.files import user_cache
from ov_specdec.results.chunks import GREEN, Chunk, GenerationResult, collect

ACCEPTED = Style(color=GREEN)

AGAIN = Control(ControlType.CARRIAGE_RETURN, (ControlType.ERASE_IN_LINE, 0))


@contextmanager
def interrupts_call(function: Callable[[], object]) -> Iterator[None]:
    """Let Ctrl-C call a function, and do nothing else."""
    before = signal.signal(signal.SIGINT, lambda *_: function())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def cancelled_by_interrupts(begin: Begin) -> Iterator[GenerationStream]:
    """The stream that `begin` returns; meanwhile Ctrl-C only cancels it."""
    early: list[bool] = []
    with (
        interrupts_call(lambda: early.append(True)),
        begin() as stream,
        interrupts_call(stream.cancel),
    ):
        if early:
            stream.cancel()
        yield stream


def show_answer(begin: Begin, *, is_typed: bool, show_draft: bool) -> GenerationResult:
    """Show an answer as it arrives; until then a spinner on stderr."""
    with cancelled_by_interrupts(begin) if is_typed else begin() as stream:
        with console.status("Reading"):
            first = next(stream)
        try:
            return collect(showing(chain([first], stream), Console(), show_draft=show_draft))
        finally:
            click.echo()


def showing(chunks: Iterable[Chunk], output: Console, *, show_draft: bool) -> Iterator[Chunk]:
    """Show the text of each chunk before it is yielded. show_draft: colour accepted tokens.

    Rich decides whether the output has colours; NO_COLOR disables them.
    """
    wraps = output.file.isatty() and not output.is_dumb_terminal
    line, spaces = Text(), ""  # spaces at the end of the text: the line may be broken there
    for chunk in chunks:
        style = ACCEPTED if show_draft and chunk.from_draft else None
        if wraps:
            text = spaces + chunk.text
            word = text.rstrip(" \t")
            spaces, start = text[len(word) :], len(line)
            lines = line.append(word, style).wrap(output, output.width)
            with output:  # one write
                if lines[1:]:  # write the line again, with line breaks
                    output.control(AGAIN)
                    start = 0
                output.print(Text("\n").join(lines)[start:], end="", soft_wrap=True)
            line = lines[-1]
        elif show_draft:
            # As a segment: rich would wrap a text and replace its tabs.
            output.print(Segments([Segment(chunk.text, style)]), soft_wrap=True)
        else:
            click.echo(chunk.text, nl=False)
        yield chunk


def note(text: str) -> None:
    """Show a note, dim, on stderr."""
    console.print(text, style="dim", markup=False, soft_wrap=not console.is_terminal)


def typed_lines(options: Iterable[str]) -> Iterator[str]:
    """Typed messages until Ctrl-D. options: names to complete."""
    keys = KeyBindings()
    for key in (("escape", "enter"), ("c-j",)):
        keys.add(*key)(lambda event: event.current_buffer.insert_text("\n"))
    editor: PromptSession[str] = PromptSession(
        "> ",
        prompt_continuation="  ",
        key_bindings=keys,
        completer=command_completer(options),
        # Completion by Tab, as in a shell: a menu would need room below the line.
        complete_style=CompleteStyle.READLINE_LIKE,
        complete_while_typing=False,
        history=_history(),
        # If only stdout is redirected, the prompt goes to stderr.
        output=create_output(always_prefer_tty=True),
    )
    # A second Ctrl-C may come just after the end of an answer.
    with interrupts_call(lambda: None), suppress(EOFError):
        while True:
            with suppress(KeyboardInterrupt):  # clears a line
                yield editor.prompt()
                continue
            if not editor.default_buffer.text:
                note("Ctrl-D or /exit leaves the chat")


def command_completer(options: Iterable[str]) -> Completer:
    """Completes commands and their arguments: options or files."""
    names, files = WordCompleter(sorted(options), WORD=True), PathCompleter(expanduser=True)
    arguments = {"/set": names, "/unset": names, "/save": files, "/load": files}
    commands = WordCompleter(list(COMMANDS), sentence=True)
    return merge([commands, NestedCompleter({**arguments})], deduplicate=True)


def _history() -> History:
    """Earlier lines in a file that only its owner can read, or in memory if there can be none."""
    if folder := user_cache():
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            os.close(os.open(folder / "history", os.O_CREAT | os.O_RDWR, mode=0o600))
            return FileHistory(folder / "history")
    return InMemoryHistory()


@contextmanager
def typed_ahead() -> Iterator[None]:
    """Keep what is typed while no line is read for the next one, and do not show it meanwhile."""
    # Windows shows what is typed only while a line is read.
    if sys.platform == "win32" or sys.stdin is None or not sys.stdin.isatty():
        yield
        return
    import termios  # Windows has none

    terminal = sys.stdin.fileno()
    before, quiet = termios.tcgetattr(terminal), termios.tcgetattr(terminal)
    quiet[0] &= ~termios.ICRNL  # the editor takes Enter as it is sent
    quiet[3] &= ~(termios.ECHO | termios.ICANON)

    def mute(*_: object) -> None:
        if os.tcgetpgrp(terminal) == os.getpgrp():  # else it would stop
            termios.tcsetattr(terminal, termios.TCSADRAIN, quiet)

    def restore(number: int = 0, _: object = None) -> None:
        signal.signal(signal.SIGCONT, signal.SIG_DFL)
        with suppress(termios.error):  # the terminal has gone
            termios.tcsetattr(terminal, termios.TCSADRAIN, before)
        if number:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)

    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, restore)
    signal.signal(signal.SIGCONT, mute)  # after Ctrl-Z, a shell has set modes of its own
    try:
        mute()
        yield
    finally:
        restore()


def piped_lines() -> Iterator[str]:
    """The lines of stdin as they arrive; `OptionError` for one that is not UTF-8."""
    stdin = io.BytesIO() if sys.stdin is None else sys.stdin.buffer  # None: it is closed
    try:
        for line in io.TextIOWrapper(stdin, encoding="utf-8"):
            yield line.rstrip("\n")
    except UnicodeDecodeError as error:
        raise OptionError(f"stdin cannot be read as text: {error}; give UTF-8") from error
