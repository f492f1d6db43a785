"""Messages of a conversation, in the form of transformers' chat templates; checked."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ov_specdec.errors import Option, OptionError, shorten
from ov_specdec.options.checks import require_utf8

Message = Mapping[str, Any]
"""A "role" and its "content": a text, or a list of parts such as {"type": "text", "text": "Hello"}.
Other keys, such as "tool_calls", are passed to the template."""


def check_messages(messages: Sequence[object], name: str = "messages") -> list[dict[str, Any]]:
    """The messages as dictionaries; `OptionError` names the first invalid one.

    name: the caller's name for them.
    """
    checked = []
    for index, message in enumerate(messages):
        where = f"{name}[{index}]"
        if not isinstance(message, Mapping):
            raise OptionError(
                Option(where),
                f" is {shorten(message)}: each message must be a mapping with role and content",
            )
        _check_role(where, message)
        _check_content(where, message)
        checked.append(dict(message))
    return checked


def has_parts(message: Message) -> bool:
    """Whether a message's content is a list of parts."""
    return isinstance(message.get("content"), list | tuple)


def join_parts(message: Message) -> Message:
    """The message with a text as its content; parts are its lines, as in vLLM."""
    if not has_parts(message):
        return message
    return {**message, "content": "\n".join(part["text"] for part in message["content"])}


def _check_role(where: str, message: Message) -> None:
    role = message.get("role")
    if role is None:
        raise OptionError(Option(where), " has no role: give one, such as 'user'")
    if not isinstance(role, str) or not role:
        raise OptionError(
            Option(where), f" has the role {shorten(role)}: it must be a text, not empty"
        )


def _check_content(where: str, message: Message) -> None:
    content = message.get("content")
    if content is None:
        # An answer that only calls tools has none.
        if message["role"] != "assistant" or not message.get("tool_calls"):
            raise OptionError(Option(where), " has no content: give a text")
        return
    for text in _texts(where, content):
        require_utf8(Option(where), text)


def _texts(where: str, content: object) -> Iterator[str]:
    """The texts of a content, one or several."""
    if isinstance(content, str):
        yield content
        return
    if not isinstance(content, list | tuple):
        raise OptionError(
            Option(where),
            f" has the content {shorten(content)}: it must be a text or a list of parts",
        )
    for part in content:
        own = part.get("text") if isinstance(part, Mapping) and part.get("type") == "text" else None
        if not isinstance(own, str):
            raise OptionError(
                Option(where),
                f" holds the part {shorten(part)}: only parts such as "
                "{'type': 'text', 'text': '...'} can be used",
            )
        yield own
