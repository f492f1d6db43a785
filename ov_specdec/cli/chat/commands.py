"""The lines of a chat: messages to the model, and commands."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ov_specdec.checks import suggest
from ov_specdec.cli.chat.conversation import Conversation, load_conversation
from ov_specdec.cli.chat.settings import Settings
from ov_specdec.errors import OptionError, SpecdecError, shorten
from ov_specdec.files import expand_home


@dataclass
class Chat:
    """The state of a chat, which its commands change.

    num_drawn: requested answers since the seed was set.
    """

    conversation: Conversation
    settings: Settings
    num_drawn: int = 0

    def next_options(self) -> dict[str, Any]:
        """The options of the next answer.

        Each takes another choice index of the seed: otherwise /retry would repeat the answer. The
        same chat still gives the same answers.
        """
        options = dict(self.settings.given)
        if options.get("seed") is not None:
            options["choice"] = self.num_drawn
        self.num_drawn += 1
        return options


Answer = Callable[[Chat, Conversation], Conversation]
"""Answers the last message of a conversation; returns the conversation with the answer."""


@dataclass(frozen=True)
class Reply:
    """The result of a line.

    note: shown to the user. asked: the conversation up to a message for the model; the chat takes
    it over once it is answered. leaves: whether the chat ends.
    """

    note: str = ""
    asked: Conversation | None = None
    leaves: bool = False


@dataclass(frozen=True)
class Command:
    """A command: its argument and description for the help, and its function on a `Chat`."""

    argument: str
    help: str
    run: Callable[[Chat, str], Reply]


LEAVING = ("exit", "quit", "/bye", "/quit")
"""Words that leave a chat, as in other programs; `/exit` does too."""


def converse(
    chat: Chat,
    lines: Iterable[str],
    answer: Answer,
    note: Callable[[str], None],
    on_error: Callable[[SpecdecError], None] | None = None,
) -> None:
    """Execute lines until one of them leaves the chat, or they end.

    note: shows a command's reply. on_error: called with an error, after which the chat is
    unchanged; None raises it.
    """
    for line in lines:
        try:
            reply = respond(chat, line)
            if reply.note:
                note(reply.note)
            if reply.asked:
                chat.conversation = answer(chat, reply.asked)
        except SpecdecError as error:
            if on_error is None:
                raise
            on_error(error)
            continue
        if reply.leaves:
            return


def respond(chat: Chat, line: str) -> Reply:
    """Execute a line, except for the model's answer.

    Raises `OptionError` for unknown or invalid commands; the chat is then unchanged.
    """
    if not line.strip():
        return Reply()
    if line.strip() in LEAVING:
        return Reply(leaves=True)
    if line.startswith("//") or not line.startswith("/"):
        return Reply(asked=chat.conversation.with_message("user", line.removeprefix("/")))
    name, _, argument = re.sub(r"\s+", " ", line, count=1).partition(" ")
    if name not in COMMANDS:
        hint = suggest(name, COMMANDS, "/help lists all", cutoff=0.5)
        raise OptionError(f"there is no command '{name}' ({hint}); start a message with // for /")
    command = COMMANDS[name]
    argument = argument.strip()
    if argument and not command.argument:
        raise OptionError(f"{name} takes no argument: leave '{argument}' out")
    if not argument and command.argument and not command.argument.startswith("["):
        raise OptionError(f"{name} lacks its argument: type {name} {command.argument}")
    return command.run(chat, argument)


def _help(chat: Chat, argument: str) -> Reply:  # noqa: ARG001
    return Reply(HELP)


def _clear(chat: Chat, argument: str) -> Reply:  # noqa: ARG001
    chat.conversation = chat.conversation.cleared()
    kept = " except for the system message" if chat.conversation.messages else ""
    return Reply(f"the conversation is empty{kept}")


def _undo(chat: Chat, argument: str) -> Reply:  # noqa: ARG001
    *before, question = chat.conversation.up_to_last_question().messages
    chat.conversation = Conversation(tuple(before))
    return Reply(f"removed the message {shorten(question['content'])} and its answer")


def _retry(chat: Chat, argument: str) -> Reply:  # noqa: ARG001
    return Reply(asked=chat.conversation.up_to_last_question())


def _system(chat: Chat, argument: str) -> Reply:
    if argument:
        chat.conversation = chat.conversation.with_system("" if argument == '""' else argument)
    system = chat.conversation.system
    return Reply("there is no system message" if system is None else f"system: {system['content']}")


def _set(chat: Chat, argument: str) -> Reply:
    if not argument:
        return Reply(_columns(chat.settings.listed()))
    name, _, value = argument.partition(" ")
    if not value:
        raise OptionError(f"/set {name} lacks its value: type /set {name} VALUE, or /unset {name}")
    return _change(chat, name, chat.settings.with_value(name, value.strip()))


def _unset(chat: Chat, argument: str) -> Reply:
    return _change(chat, argument, chat.settings.without_value(argument))


def _change(chat: Chat, name: str, settings: Settings) -> Reply:
    chat.settings = settings
    if name.lstrip("-") == "seed":
        chat.num_drawn = 0
    return Reply()


def _save(chat: Chat, argument: str) -> Reply:
    chat.conversation.save(expand_home(argument))
    return Reply(f"saved {len(chat.conversation.messages)} messages in '{argument}'")


def _load(chat: Chat, argument: str) -> Reply:
    chat.conversation = load_conversation(expand_home(argument))
    return Reply(f"loaded {len(chat.conversation.messages)} messages from '{argument}'")


def _columns(rows: Mapping[str, str]) -> str:
    width = max(map(len, rows))
    return "\n".join(f"{key:<{width}}  {text}" for key, text in rows.items())


COMMANDS = {
    "/help": Command("", "List the commands and keys.", _help),
    "/clear": Command("", "Remove all messages but the system message.", _clear),
    "/undo": Command("", "Remove the last message and its answer.", _undo),
    "/retry": Command("", "Answer the last message again.", _retry),
    "/system": Command("[TEXT]", 'Show or replace the system message; "" removes it.', _system),
    "/set": Command("[OPTION VALUE]", "Set an option of the command line, or list all.", _set),
    "/unset": Command("OPTION", "Set an option back to its default.", _unset),
    "/save": Command("FILE", "Write the messages to a JSON file.", _save),
    "/load": Command("FILE", "Continue with the messages of such a file.", _load),
    "/exit": Command("", "Leave; so do exit, quit and Ctrl-D.", lambda *_: Reply(leaves=True)),
}

_USAGES = {f"{name} {command.argument}": command.help for name, command in COMMANDS.items()}
HELP = f"""\
{_columns(_USAGES)}

Enter sends, Alt-Enter or Ctrl-J starts a new line, Tab completes, Up recalls earlier lines.
Ctrl-C ends an answer, Ctrl-D the chat. For a message that begins with /, type //."""
"""The text of /help."""
