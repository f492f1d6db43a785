"""A conversation as an immutable value."""

import json
from dataclasses import dataclass
from pathlib import Path

from ov_specdec.checks import require_utf8
from ov_specdec.errors import OptionError
from ov_specdec.text.messages import Message, check_messages


@dataclass(frozen=True)
class Conversation:
    """Messages from the first to the last; one of the role "system" may be the first of them."""

    messages: tuple[Message, ...] = ()

    @property
    def system(self) -> Message | None:
        """The system message, if there is one."""
        return self.messages[0] if self._has_system else None

    def with_message(self, role: str, content: str) -> "Conversation":
        """With another message at its end."""
        return Conversation((*self.messages, {"role": role, "content": content}))

    def with_system(self, text: str) -> "Conversation":
        """With this system message; an empty one removes it."""
        require_utf8("the system message", text)
        first = ({"role": "system", "content": text},) if text else ()
        return Conversation((*first, *self.messages[self._has_system :]))

    def cleared(self) -> "Conversation":
        """The system message alone."""
        return Conversation(self.messages[: self._has_system])

    def up_to_last_question(self) -> "Conversation":
        """All up to the last user message; `OptionError` if there is none."""
        for i in range(len(self.messages), 0, -1):
            if self.messages[i - 1]["role"] == "user":
                return Conversation(self.messages[:i])
        raise OptionError("the conversation is empty: write a message first")

    def save(self, path: Path) -> None:
        """Write the messages as JSON; `OptionError` if the file cannot be written."""
        content = json.dumps(self.messages, ensure_ascii=False, indent=2)
        try:
            path.write_bytes(f"{content}\n".encode())
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise OptionError(
                f"'{path}' cannot be written ({reason}): give another file"
            ) from error

    @property
    def _has_system(self) -> bool:
        return bool(self.messages) and self.messages[0]["role"] == "system"


def load_conversation(path: Path) -> Conversation:
    """The conversation in a file that `Conversation.save` wrote; `OptionError` for any other."""
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
        return Conversation(tuple(check_messages(messages)))
    except OptionError as error:
        raise OptionError(f"'{path}' holds no conversation: {error}") from error
