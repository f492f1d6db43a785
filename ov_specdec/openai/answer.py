"""`Answer`: the common data of the bodies of one answer."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import time
from typing import Any
from uuid import uuid4

from ov_specdec.openai.ask import Ask
from ov_specdec.text.tokenizer import Tokenizer

PREFIXES = {"chat": "chatcmpl-", "completions": "cmpl-", "responses": "resp_"}
"""Prefixes of the ids of answers, by endpoint."""


@dataclass(frozen=True)
class Answer:
    """The common data of all bodies of one answer.

    id: of the request. model: its served name. created: seconds since 1970. decode: the text of
    token ids, special tokens included. piece: the bytes of a token.
    """

    ask: Ask
    id: str
    model: str
    created: int
    decode: Callable[[Sequence[int]], str]
    piece: Callable[[int], bytes]

    @classmethod
    def begin(cls, ask: Ask, model: str, tokenizer: Tokenizer) -> "Answer":
        """A new answer to a request, created now."""
        name = PREFIXES[ask.endpoint] + uuid4().hex
        return cls(ask, name, model, int(time()), tokenizer.decode_all, tokenizer.piece)

    @property
    def head(self) -> dict[str, Any]:
        """The common fields of every body of chat completions and completions."""
        return {"id": self.id, "created": self.created, "model": self.model}

    def prompt_text(self, index: int) -> str:
        """The prompt of the choice with this index, for `echo`."""
        prompt = self.ask.prompts[index // self.ask.n]
        return prompt if isinstance(prompt, str) else self.decode(list(prompt))  # type: ignore[arg-type]
