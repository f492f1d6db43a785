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
        """What later turns read as the answer: that of plain decoding.

        It is complete also where the run was stopped while the other one was being generated.
        """
        return self.comparison.plain.text

    @property
    def is_answered(self) -> bool:
        """Whether there is an answer yet; it may be an end-of-sequence token alone."""
        return bool(self.comparison.plain.token_ids)


@dataclass
class Conversation:
    """The turns, from the first to the last.

    It changes in place, so a run that is still going on when it is cleared adds nothing to it.
    """

    turns: list[Turn] = field(default_factory=list)

    def ask(self, message: str) -> Turn:
        """Add a turn, in place of one that has got no answer."""
        self.take_back()
        turn = Turn(message)
        self.turns.append(turn)
        return turn

    def take_back(self) -> Turn | None:
        """Remove and return the last turn if it has no answer."""
        turns = self.turns
        return turns.pop() if turns and not turns[-1].is_answered else None

    def clear(self) -> None:
        """Begin anew."""
        self.turns = []  # the old list may be in use in another thread

    def prompt(self, system: str = "") -> list[Message]:
        """All messages up to the visitor's last one, for `SpeculativePipeline.stream`.

        system: the system message; none where it is blank. Raises `OptionError` where there is no
        message to answer.
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
