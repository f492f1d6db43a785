"""Tokenizers whose tokens are letters, so that a record of ids can be read."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from string import ascii_letters
from types import SimpleNamespace
from typing import ClassVar

SIGNS = ascii_letters + "0123456789+-*/=.,;:!?"
"""What ids are written as in a record, each as one sign, whatever their tokens are."""

PAIRS = ("on", "ti", "aa", "dj", "Ol", "Au", "by", "ht", "zw", "Qj", "JN", "zz")
"""Some that texts of `Script` have."""


@dataclass(frozen=True)
class Letters:
    """A tokenizer, and at the same time its pieces: each token is a text of one letter or two."""

    tokens: tuple[str, ...]
    chat_template = None
    eos_token_id = None
    special_tokens: ClassVar[dict[int, str]] = {}

    def encode(
        self, text: str | bytes, src_lang: str | None = None, *, add_special_tokens: bool = True
    ) -> list[int]:
        """The longest token first; letters that have none are left out."""
        rest, ids = text if isinstance(text, str) else text.decode(), list[int]()
        while rest:
            size = 2 if rest[:2] in self._ids else 1
            if rest[:size] in self._ids:
                ids.append(self._ids[rest[:size]])
            rest = rest[size:]
        return ids

    def encode_rendered(self, text: str, *_: object, **__: object) -> SimpleNamespace:
        """As the tokenizer of a model folder gives it."""
        return SimpleNamespace(ids=self.encode(text))

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids."""
        return "".join(self.tokens[token] for token in ids)

    def piece_after(self, before: int | None, token: int) -> bytes:
        """The text of a token, whatever is before it."""
        return self.tokens[token].encode()

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {token: i for i, token in enumerate(self.tokens)}


class Pieces:
    """The same as pieces of bytes, for pairings."""

    eos_token_id = None
    prefix: tuple[int, ...] = ()

    def __init__(self, letters: Letters) -> None:
        self._letters = letters
        self.bytes_of = [token.encode() for token in letters.tokens]
        self.special: dict[str, int] = {}
        self.fallbacks: set[int] = set()

    def encode(self, piece: bytes) -> list[int]:
        """The ids of a piece."""
        return self._letters.encode(piece)

    def decode(self, ids: Sequence[int]) -> bytes:
        """The bytes of ids."""
        return self._letters.decode(ids).encode()


MAIN = Letters((*ascii_letters[:49], " "))
"""a to z, A to W, and a space, which a record shows as X."""

OTHER = Letters((" ", *ascii_letters[45:47], *ascii_letters[:45], *PAIRS))
"""The letters in another order, without two of them, and pairs of some."""


def signs(ids: Sequence[int]) -> str:
    """Ids in a record; of many the first and last, and what tells others apart."""
    if len(ids) <= 48:
        return "".join(SIGNS[token] for token in ids)
    total = sum(place * token for place, token in enumerate(ids, 1)) % 9973
    return f"{signs(ids[:8])}..{len(ids)} tokens, {total}..{signs(ids[-8:])}"
