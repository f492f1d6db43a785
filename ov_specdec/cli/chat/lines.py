"""The user's lines: typed with line editing, history and completion, or from a pipe."""

import io
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import (
    CompleteEvent,
    Completer,
    Completion,
    DummyCompleter,
    PathCompleter,
    WordCompleter,
)
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output import create_output
from prompt_toolkit.shortcuts import CompleteStyle

from ov_specdec.cli.chat.conversation import COMMANDS
from ov_specdec.errors import OptionError

if sys.platform != "win32":
    import termios
    from signal import SIGCONT, SIGHUP, SIGQUIT, SIGTERM


def typed_lines(
    options: Iterable[str], history: Path | None, note: Callable[[str], None]
) -> Iterator[str]:
    """Typed messages until Ctrl-D.

    options: names to complete after /set. history: file of earlier lines; None keeps them in
    memory. note: shows a hint.
    """
    editor: PromptSession[str] = PromptSession(
        "> ",
        multiline=True,
        key_bindings=_keys(),
        completer=CommandCompleter(options),
        # Completion by Tab, as in a shell: a menu would need room below the line.
        complete_style=CompleteStyle.READLINE_LIKE,
        complete_while_typing=False,
        history=_history(history),
        # If only stdout is redirected, the prompt goes to stderr.
        output=create_output(always_prefer_tty=True),
    )
    with suppress(EOFError):
        while True:
            yield _line(editor, note)


@contextmanager
def typed_ahead() -> Iterator[None]:
    """Keep what is typed while no line is read for the next one, and do not show it meanwhile."""
    # Windows shows what is typed only while a line is read.
    if sys.platform == "win32" or sys.stdin is None or not sys.stdin.isatty():
        yield
        return
    terminal = sys.stdin.fileno()
    before, quiet = termios.tcgetattr(terminal), termios.tcgetattr(terminal)
    quiet[0] &= ~termios.ICRNL  # the editor takes Enter as it is sent
    quiet[3] &= ~(termios.ECHO | termios.ICANON)

    def mute(*_: object) -> None:
        if os.tcgetpgrp(terminal) == os.getpgrp():  # else it would stop
            termios.tcsetattr(terminal, termios.TCSADRAIN, quiet)

    def restore() -> None:
        with suppress(termios.error):  # the terminal has gone
            termios.tcsetattr(terminal, termios.TCSADRAIN, before)

    def end(number: int, _: object) -> None:
        restore()
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)

    usual = {each: signal.signal(each, end) for each in (SIGTERM, SIGHUP, SIGQUIT)}
    usual[SIGCONT] = signal.signal(SIGCONT, mute)  # after Ctrl-Z, a shell has set modes of its own
    try:
        mute()
        yield
    finally:
        restore()
        for number, handler in usual.items():
            signal.signal(number, handler)


def _line(editor: PromptSession[str], note: Callable[[str], None]) -> str:
    """One message; empty after Ctrl-C, which clears a line."""
    try:
        return editor.prompt()
    except KeyboardInterrupt:
        if not editor.default_buffer.text:
            note("Ctrl-D or /exit leaves the chat")
        return ""


def piped_lines() -> Iterator[str]:
    """The lines of stdin as they arrive; `OptionError` for one that is not UTF-8."""
    if sys.stdin is None:  # closed
        return
    lines = io.TextIOWrapper(sys.stdin.buffer, encoding="utf-8")
    try:
        yield from (line.rstrip("\n") for line in lines)
    except UnicodeDecodeError as error:
        raise OptionError(f"stdin cannot be read as text: {error}; give UTF-8") from error


class CommandCompleter(Completer):
    """Completes commands and their arguments: options or files."""

    def __init__(self, options: Iterable[str]) -> None:
        names = WordCompleter(sorted(options), WORD=True)
        files = PathCompleter(expanduser=True)
        self._commands = WordCompleter(list(COMMANDS), WORD=True)
        self._arguments = {"/set": names, "/unset": names, "/save": files, "/load": files}

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        """See prompt_toolkit's `Completer`."""
        name, space, argument = document.text_before_cursor.partition(" ")
        completer: Completer = self._arguments.get(name, DummyCompleter())
        if not space:
            completer = self._commands if name.startswith("/") else DummyCompleter()
            argument = name
        return completer.get_completions(Document(argument), complete_event)


def _keys() -> KeyBindings:
    """Enter sends; Alt-Enter and Ctrl-J begin a new line."""
    keys = KeyBindings()

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    @keys.add("escape", "enter")
    @keys.add("c-j")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return keys


def _history(file: Path | None) -> History:
    """The history in this file, which only its owner can read, or else in memory."""
    if file is None:
        return InMemoryHistory()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch(mode=0o600)
        file.open("ab").close()
    except OSError:  # read-only, for instance: a chat needs no history
        return InMemoryHistory()
    return FileHistory(file)
