"""What a user writes: typed with line editing, history and completion, or piped in."""

import io
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
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

from ov_specdec.cli.chat.commands import COMMANDS
from ov_specdec.errors import OptionError

HINT = "Ctrl-D or /exit leaves the chat"


def typed_lines(
    options: Iterable[str], history: Path | None, note: Callable[[str], None]
) -> Iterator[str]:
    """What is typed, message by message, until Ctrl-D.

    options: names that are completed after /set. history: file that keeps what was typed; None
    keeps it in memory. note: shows a hint.
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
        # Where only stdout is redirected, the line is shown on stderr.
        output=create_output(always_prefer_tty=True),
    )
    with suppress(EOFError):
        while True:
            line = _line(editor)
            if line is None:
                note(HINT)
            else:
                yield line


def _line(editor: PromptSession[str]) -> str | None:
    """One message, empty after Ctrl-C; None after Ctrl-C where nothing was typed."""
    try:
        return editor.prompt()
    except KeyboardInterrupt:
        return "" if editor.default_buffer.text else None


def piped_lines() -> Iterator[str]:
    """The lines of stdin as they come; `OptionError` for one that is not UTF-8."""
    if sys.stdin is None:  # closed
        return
    lines = io.TextIOWrapper(sys.stdin.buffer, encoding="utf-8")
    try:
        yield from (line.rstrip("\n") for line in lines)
    except UnicodeDecodeError as error:
        raise OptionError(f"stdin cannot be read as text: {error}; give UTF-8") from error


class CommandCompleter(Completer):
    """Completes commands and what follows some of them: an option's name, or a file's."""

    def __init__(self, options: Iterable[str]) -> None:
        names = WordCompleter(sorted(options), WORD=True)
        files = PathCompleter(expanduser=True)
        self._commands = WordCompleter(list(COMMANDS), WORD=True)
        self._arguments = {"/set": names, "/unset": names, "/save": files, "/load": files}

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        """As prompt_toolkit's completers."""
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
    """What was typed in this file, or else in memory; others cannot read it."""
    if file is None:
        return InMemoryHistory()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch(mode=0o600)
        file.open("ab").close()
    except OSError:  # read-only, for instance: a chat is possible without
        return InMemoryHistory()
    return FileHistory(file)
