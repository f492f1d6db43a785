"""A conversation with the options of its answers, and the commands that change both."""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import click

from ov_specdec.cli.terminal import flag_of
from ov_specdec.errors import OptionError, SpecdecError, shorten
from ov_specdec.options.checks import require_utf8, suggest
from ov_specdec.options.generation import GenerationOptions
from ov_specdec.records.files import expand_home
from ov_specdec.text.chat import Message, check_messages

SALT = "chat"
"""The `cache_salt` of all generations of a chat, whose later turns thus keep the ids of answers."""

Answer = Callable[[Sequence[Message], Mapping[str, Any]], str | None]
"""Answers the last of the messages, with these options; None without an answer."""


@dataclass
class Chat:
    """A conversation, and the options of its next answers.

    answer: generates an answer. options: those of the command line that can be set. complete: adds
    defaults to given ones, and raises `OptionError` for invalid ones. given: by their Python names.
    messages: one of the role "system" may be the first. num_drawn: answers since the seed was set.
    """

    answer: Answer
    options: Iterable[click.Option]
    complete: Callable[[Mapping[str, Any]], GenerationOptions]
    given: Mapping[str, Any] = field(default_factory=dict)
    messages: list[Message] = field(default_factory=list)
    num_drawn: int = 0

    def respond(self, line: str) -> str:
        """Execute a command, or answer a message. Returns a note for the user.

        Raises `SpecdecError` for an invalid command and a failed answer; nothing is changed then.
        """
        if not line.strip():
            return ""
        if line.startswith("//") or not line.startswith("/"):
            return self._ask([*self.messages, {"role": "user", "content": line.removeprefix("/")}])
        name, _, argument = re.sub(r"\s+", " ", line, count=1).partition(" ")
        if name not in COMMANDS:
            hint = suggest(name, COMMANDS, "/help lists all", cutoff=0.5)
            raise OptionError(
                f"there is no command '{name}' ({hint}); start a message with // for /"
            )
        usage, run = COMMANDS[name]
        argument = argument.strip()
        if argument and not usage:
            raise OptionError(f"{name} takes no argument: leave '{argument}' out")
        if not argument and usage and not usage.startswith("["):
            raise OptionError(f"{name} lacks its argument: type {name} {usage}")
        return run(self, argument)

    def _ask(self, messages: list[Message]) -> str:
        """Answer the last message.

        With a seed, each answer takes another choice index: otherwise /retry would repeat it.
        """
        options = dict(self.given)
        if options.get("cache_prompt", True):
            options["cache_salt"] = SALT
        if options.get("seed") is not None:
            options["choice"] = self.num_drawn
        self.num_drawn += 1
        text = self.answer(messages, options)
        if text is None:
            return "there is no answer yet, so the conversation is unchanged"
        self.messages = [*messages, {"role": "assistant", "content": text}]
        return ""

    @property
    def _system(self) -> list[Message]:
        """The system message, if there is one."""
        return [each for each in self.messages[:1] if each["role"] == "system"]

    def _to_question(self) -> list[Message]:
        """All messages up to the last one of the user."""
        for end in range(len(self.messages), 0, -1):
            if self.messages[end - 1]["role"] == "user":
                return self.messages[:end]
        raise OptionError("the conversation is empty: write a message first")

    def clear(self, _: str) -> str:
        """Remove all messages but the system message."""
        self.messages = self._system
        return f"the conversation is empty{' except for the system message' * len(self.messages)}"

    def undo(self, _: str) -> str:
        """Remove the last message and its answer."""
        *self.messages, question = self._to_question()
        return f"removed the message {shorten(question['content'])} and its answer"

    def retry(self, _: str) -> str:
        """Answer the last message again."""
        return self._ask(self._to_question())

    def system(self, argument: str) -> str:
        """Show or replace the system message; "" removes it."""
        if argument:
            require_utf8("the system message", argument)
            new = [] if argument == '""' else [{"role": "system", "content": argument}]
            self.messages = [*new, *self.messages[len(self._system) :]]
        shown = [f"system: {each['content']}" for each in self._system]
        return "".join(shown) or "there is no system message"

    def save(self, argument: str) -> str:
        """Write the messages to a JSON file."""
        path = expand_home(argument)
        content = json.dumps(self.messages, ensure_ascii=False, indent=2)
        try:
            path.write_bytes(f"{content}\n".encode())
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise OptionError(
                f"'{path}' cannot be written ({reason}): give another file"
            ) from error
        return f"saved {len(self.messages)} messages in '{argument}'"

    def load(self, argument: str) -> str:
        """Continue with the messages of such a file."""
        path = expand_home(argument)
        try:
            messages = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise OptionError(
                f"'{path}' cannot be read ({error.strerror}): give another file"
            ) from error
        except (ValueError, RecursionError) as error:
            raise OptionError(
                f"'{path}' holds no JSON ({error}): give a file that /save wrote"
            ) from error
        if not isinstance(messages, list):
            raise OptionError(f"'{path}' holds no list of messages: give a file that /save wrote")
        try:
            self.messages = [*check_messages(messages)]
        except OptionError as error:
            raise OptionError(f"'{path}' holds no conversation: {error}") from error
        return f"loaded {len(messages)} messages from '{argument}'"

    def set(self, argument: str) -> str:
        """Set an option of the command line, or list all."""
        if not argument:
            values = self.complete(self.given)
            flags = self.flags()
            return _columns(
                {flag: _shown(getattr(values, str(flags[flag].name))) for flag in flags}
            )
        name, _, text = argument.partition(" ")
        if not text:
            raise OptionError(
                f"/set {name} lacks its value: type /set {name} VALUE, or /unset {name}"
            )
        option = self._find(name)
        key, text = str(option.name), text.strip()
        try:
            context = click.Context(click.Command("/set"))
            value = option.process_value(context, (text,) if option.multiple else text)
        except click.BadParameter as error:
            raise OptionError(error.format_message()) from error
        if option.multiple and isinstance(value, Mapping):
            value = {**self.given.get(key, {}), **value}
        elif option.multiple:
            value = (*self.given.get(key, ()), *value)
        return self._give(key, {**self.given, key: value})

    def unset(self, argument: str) -> str:
        """Set an option back to its default."""
        key = str(self._find(argument).name)
        return self._give(key, {name: each for name, each in self.given.items() if name != key})

    def _give(self, key: str, given: Mapping[str, Any]) -> str:
        self.complete(given)
        self.given = given
        if key == "seed":
            self.num_drawn = 0
        return ""

    def flags(self) -> dict[str, click.Option]:
        """The options by their names on the command line, without hyphens."""
        return {flag_of(option).removeprefix("--"): option for option in self.options}

    def _find(self, name: str) -> click.Option:
        """An option by its name on the command line or in Python."""
        known, typed = self.flags(), name.lstrip("-").replace("_", "-")
        if typed not in known:
            hint = suggest(typed, known, "/set lists all options")
            raise OptionError(f"there is no option '{name}': {hint}")
        return known[typed]

    def help(self, _: str) -> str:
        """List the commands and keys."""
        rows = {f"{name} {usage}": run.__doc__ or "" for name, (usage, run) in COMMANDS.items()}
        return f"{_columns(rows)}\n\n{KEYS}"

    def leave(self, _: str) -> str:
        """Leave; so do exit, quit, /bye and Ctrl-D."""
        return ""


COMMANDS: Mapping[str, tuple[str, Callable[[Chat, str], str]]] = {
    "/help": ("", Chat.help),
    "/clear": ("", Chat.clear),
    "/undo": ("", Chat.undo),
    "/retry": ("", Chat.retry),
    "/system": ("[TEXT]", Chat.system),
    "/set": ("[OPTION VALUE]", Chat.set),
    "/unset": ("OPTION", Chat.unset),
    "/save": ("FILE", Chat.save),
    "/load": ("FILE", Chat.load),
    "/exit": ("", Chat.leave),
}
"""The argument of each command, and its function, whose first line describes it."""

KEYS = """\
Enter sends, Alt-Enter or Ctrl-J starts a new line, Tab completes, Up recalls earlier lines.
Ctrl-C ends an answer, Ctrl-D the chat. For a message that begins with /, type //."""

LEAVING = ("exit", "quit", "/exit", "/bye", "/quit")


def converse(
    chat: Chat,
    lines: Iterable[str],
    note: Callable[[str], None],
    on_error: Callable[[SpecdecError], None] | None = None,
) -> None:
    """Execute lines until one of them leaves the chat, or they end.

    note: shows a command's reply. on_error: called with an error; None raises it.
    """
    for line in lines:
        if line.strip() in LEAVING:
            return
        try:
            if reply := chat.respond(line):
                note(reply)
        except SpecdecError as error:
            if on_error is None:
                raise
            on_error(error)


def _columns(rows: Mapping[str, str]) -> str:
    width = max(map(len, rows))
    return "\n".join(f"{key:<{width}}  {text}" for key, text in rows.items())


def _shown(value: Any) -> str:
    """A value for a list of options; "-" for none."""
    if value is None or value in ((), {}):
        return "-"
    return ", ".join(map(repr, value)) if isinstance(value, tuple) else str(value)
