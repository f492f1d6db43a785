"""`Answer`: the common data of the bodies of one answer."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from time import time
from typing import Any
from uuid import uuid4

from ov_specdec.openai.ask import Ask
from ov_specdec.results.chunks import ResultBuilder
from ov_specdec.results.stats import GenerationStats
from ov_specdec.text.detokenizer import CharacterStream, PieceAfter
from ov_specdec.text.generated_tokens import EncodedText
from ov_specdec.text.tokenizer import Tokenizer

PREFIXES = {"chat": "chatcmpl-", "completions": "cmpl-", "responses": "resp_"}
"""Prefixes of the ids of answers, by endpoint."""


@dataclass
class Answer:
    """The common data of all bodies of one answer.

    id: of the request. model: its served name. created: seconds since 1970. decode: the text of
    token ids, special tokens included. piece, piece_after: the bytes of a token. encode: a text to
    tokens. choices: of `Ask.generations`, in that order, as far as they have come.
    """

    ask: Ask
    id: str
    model: str
    created: int
    decode: Callable[[Sequence[int]], str]
    piece: Callable[[int], bytes]
    piece_after: PieceAfter
    encode: Callable[..., EncodedText]
    choices: list[ResultBuilder] = field(init=False)

    def __post_init__(self) -> None:
        self.choices = [ResultBuilder() for _ in range(self.ask.num_choices)]

    @classmethod
    def begin(cls, ask: Ask, model: str, tokenizer: Tokenizer) -> "Answer":
        """A new answer to a request, created now."""
        name = PREFIXES[ask.endpoint] + uuid4().hex
        of = tokenizer
        functions = of.decode_all, of.piece, of.piece_after, of.encode_rendered
        return cls(ask, name, model, int(time()), *functions)

    @property
    def stats(self) -> list[GenerationStats]:
        """The statistics of the choices that have ended."""
        return [choice.stats for choice in self.choices if choice.stats is not None]

    @property
    def head(self) -> dict[str, Any]:
        """The common fields of every body of chat completions and completions."""
        return {"id": self.id, "created": self.created, "model": self.model}

    def prompt_text(self, index: int) -> str:
        """The prompt of the choice with this index, for `echo`; empty without."""
        if not self.ask.echo:
            return ""
        prompt = self.ask.prompts[index // self.ask.n]
        return prompt if isinstance(prompt, str) else self.decode(list(prompt))  # type: ignore[arg-type]

    def prompt_offsets(self, index: int) -> list[int]:
        """For each token of this prompt, the characters of its text before it."""
        prompt = self.ask.prompts[index // self.ask.n]
        if not isinstance(prompt, str):
            text = CharacterStream(self.piece_after, [])
            ids: list[int] = list(prompt)  # type: ignore[arg-type]
            return [*accumulate((len(text.push(token)) for token in ids), initial=0)][:-1]
        adds = self.ask.options.add_special_tokens is not False
        spans = self.encode(prompt, add_special_tokens=adds).offsets
        ends = accumulate((end for _, end in spans), max, initial=0)
        # Tokens that the tokenizer adds have an empty span, wherever they are.
        return [
            start if start < end else last for (start, end), last in zip(spans, ends, strict=False)
        ]
