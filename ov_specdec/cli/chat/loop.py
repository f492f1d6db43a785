"""The loop of a chat: lines and the model's answers."""

from collections.abc import Callable, Iterable

from ov_specdec.cli.chat.commands import Chat, respond
from ov_specdec.cli.chat.conversation import Conversation
from ov_specdec.errors import SpecdecError

Answer = Callable[[Chat, Conversation], Conversation]
"""Answers the last message of a conversation; returns the conversation with the answer."""


def converse(
    chat: Chat,
    lines: Iterable[str],
    answer: Answer,
    note: Callable[[str], None],
    on_error: Callable[[SpecdecError], None],
) -> None:
    """Execute lines until one of them leaves the chat, or they end.

    note: shows a command's reply. on_error: called with an error, after which the chat is
    unchanged; it may raise.
    """
    for line in lines:
        try:
            reply = respond(chat, line)
            if reply.note:
                note(reply.note)
            if reply.asked:
                chat.conversation = answer(chat, reply.asked)
        except SpecdecError as error:
            on_error(error)
            continue
        if reply.leaves:
            return
