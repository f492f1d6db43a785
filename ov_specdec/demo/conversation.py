"""A visitor's conversation with a model that has a chat template."""

from dataclasses import dataclass, field

from ov_specdec.demo.comparison import Comparison
from ov_specdec.errors import OptionError
from ov_specdec.text.messages import Message


@dataclass
class Turn:
    """A message of the visitor, and both answers to it, so far."""

    message: str
    comparison: Comparison = field(default_factory=Comparison)

    @property
    def answer(self) -> str:
        """The answer in the prompts of later turns: that of plain decoding.

        It is complete even if the visitor stopped the run during speculative decoding.
        """
        return self.comparison.plain.text

    @property
    def is_answered(self) -> bool:
        """Whether there is an answer; it may be a single end-of-sequence token."""
        return bool(self.comparison.plain.token_ids)


@dataclass
class Conversation:
    """The turns, from the first to the last.

    It changes in place, so a run that outlasts `clear` adds nothing to it.
    """

    turns: list[Turn] = field(default_factory=list)

    def ask(self, message: str) -> Turn:
        """Add a turn; it replaces a last turn without an answer."""
        self.take_back()
        turn = Turn(message)
        self.turns.append(turn)
        return turn

    def take_back(self) -> Turn | None:
        """Remove and return the last turn if it has no answer."""
        turns = self.turns
        return turns.pop() if turns and not turns[-1].is_answered else None

    def clear(self) -> None:
        """Remove all turns."""
        self.turns = []  # the old list may be in use in another thread

    def prompt(self, system: str = "") -> list[Message]:
        """All messages up to the visitor's last one, for `SpeculativePipeline.stream`.

        system: the system message; none if blank. Raises `OptionError` if there is no message to
        answer.
        """
        turns = self.turns
        if not turns:
            raise OptionError("the conversation is empty: send a message first")
        *earlier, last = turns
        if not last.message.strip():
            raise OptionError("the message is empty: write one")
        messages = [_message("system", system)] if system.strip() else []
        for turn in earlier:
            messages += [_message("user", turn.message), _message("assistant", turn.answer)]
        return [*messages, _message("user", last.message)]


def _message(role: str, content: str) -> Message:
    return {"role": role, "content": content}
