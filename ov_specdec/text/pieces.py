"""Tokens as bytes: decode ids to bytes, and encode bytes to ids."""

import json
import re
from collections.abc import Sequence
from typing import Any

from tokenizers import Tokenizer as BackendTokenizer

from ov_specdec.errors import Option, TokenizerMismatchError
from ov_specdec.text.detokenizer import BYTE_TOKEN, bytes_reader
from ov_specdec.text.tokenizer import Tokenizer

INVALID = re.compile("([\udc80-\udcff]+)")
"""Bytes that are not UTF-8, as Python's "surrogateescape" decodes them."""


class PieceTokenizer:
    """A tokenizer for pieces from the middle of a text: it adds nothing before or after them.

    Special tokens have no bytes, and no text encodes to one. Supports byte-level BPE, and
    sentencepiece with or without byte fallback; raises `TokenizerMismatchError` for others.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        read = bytes_reader(tokenizer.spec)
        if read is None:
            raise TokenizerMismatchError(
                f"{tokenizer.path}/tokenizer.json is neither a byte-level nor a sentencepiece "
                "tokenizer, and a pairing has to know what its tokens are in bytes: use a draft of "
                "the same family, or ",
                Option("drafter", "prompt-lookup"),
            )
        special = tokenizer.special_tokens
        self.special = {name: token_id for token_id, name in special.items()}
        """Ids of the special tokens, by their names."""
        self.eos_token_id = tokenizer.eos_token_id
        self.prefix = [token for token in tokenizer.encode("") if token != self.eos_token_id]
        """Ids that the model expects before a text."""
        self.bytes_of: list[bytes] = [b""] * tokenizer.vocab_size
        """The bytes of each id; empty if it is special or has no token."""
        for token, token_id in tokenizer.vocab.items():
            if token_id not in special:
                self.bytes_of[token_id] = read(token)
        self.fallbacks = {
            token_id for token, token_id in tokenizer.vocab.items() if BYTE_TOKEN.fullmatch(token)
        }
        """Ids of byte-fallback tokens."""
        self._id_of_byte = {data[0]: i for i, data in enumerate(self.bytes_of) if len(data) == 1}
        # Without the special treatment of the beginning of a text.
        names = ("normalizer", "pre_tokenizer")
        parts = {name: _without_prefix(tokenizer.spec.get(name)) for name in names}
        never = dict.fromkeys(("post_processor", "truncation", "padding"))
        self._backend = BackendTokenizer.from_str(json.dumps({**tokenizer.spec, **parts, **never}))
        self._backend.encode_special_tokens = True  # special tokens in a text as plain text

    def decode(self, ids: Sequence[int]) -> bytes:
        """The bytes of some ids, which may begin or end within a character."""
        return b"".join([self.bytes_of[token] for token in ids])

    def encode(self, piece: bytes) -> list[int]:
        """Ids with these bytes. Bytes without a token in this vocabulary are dropped."""
        ids = list[int]()
        for text in INVALID.split(piece.decode(errors="surrogateescape")):
            if INVALID.match(text):
                codes = text.encode(errors="surrogateescape")
                ids += [self._id_of_byte[code] for code in codes if code in self._id_of_byte]
            elif text:
                ids += self._backend.encode(text, add_special_tokens=False).ids
        return [token for token in ids if self.bytes_of[token]]  # drop the unknown token


def _without_prefix(part: dict[str, Any] | None) -> dict[str, Any] | None:
    """A normalizer or pre-tokenizer that neither adds nor strips anything at the beginning."""
    if part is None or part["type"] in ("Prepend", "Strip"):
        return None
    inner: dict[str, Any] = {
        name: [left for inner in part[name] if (left := _without_prefix(inner)) is not None]
        for name in ("normalizers", "pretokenizers")
        if name in part
    }
    never = {"add_prefix_space": False, "prepend_scheme": "never"}
    return {**part, **inner, **{name: value for name, value in never.items() if name in part}}
