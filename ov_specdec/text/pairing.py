"""Pairs two different tokenizers: by the tokens that they share, or by translating ids."""

import json
import re
from codecs import utf_8_decode
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer as BackendTokenizer

from ov_specdec.errors import Option, TokenizerMismatchError
from ov_specdec.text.guard import PROBES
from ov_specdec.text.tokenizer import BYTE_TOKEN, Tokenizer, bytes_reader

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
                "tokenizer, and a pairing has to know what its tokens are in bytes: use a draft "
                "of the same family, or {drafter}",
                drafter="prompt-lookup",
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


PairingName = Literal["intersection", "retokenize", "auto"]
UsedPairing = Literal["intersection", "retokenize"]

ENOUGH_IN_COMMON = 0.9
"""Minimum share of common tokens in sample texts for which "auto" takes the intersection.

With 94 % in common, the intersection had 0.85 times the accepted draft tokens per round of
retokenization in greedy decoding, and 2 to 5 times in sampling. With 83 %, it had 0.61 times in
greedy decoding, the usual case.
"""

NUM_EXAMPLES = 8

REENCODED = 4
"""Last ids, plus those back to a space, that are encoded again with new text: as parts of one word
they may change."""
MAX_WINDOW = 16
"""The same where there is no space, as in Chinese."""


class Translation:
    """Translates the main model's ids of a growing sequence to the draft model's ids.

    The draft's tokenizer encodes the text. When it grows, only a window at its end is encoded
    again, so all ids before it, and the draft's KV cache of them, stay valid. A special token maps
    to the draft's token of the same role, or is dropped.

    special: from the main model's special tokens to the draft's.
    """

    def __init__(
        self, main: PieceTokenizer, draft: PieceTokenizer, special: Mapping[int, int]
    ) -> None:
        self._main = main
        self._draft = draft
        self._special = special
        self.ids = list(self._draft.prefix)
        """The ids so far."""
        self.num_stable = len(self.ids)
        """The first ids, up to this number, will not change."""
        self.rest = b""
        """Bytes of an unfinished character at the end of the text, not encoded yet."""
        self._num_read = 0

    def read(self, tokens: Sequence[int]) -> None:
        """Translate these main ids, which begin with those of the last call."""
        piece: list[int] = []
        for token in tokens[self._num_read :]:
            if self._main.bytes_of[token]:
                piece.append(token)
                continue
            self._append(self._main.decode(piece))
            self.ids += self._draft.encode(self.rest)
            self.ids += [self._special[token]] if token in self._special else []
            self.num_stable = len(self.ids)
            piece, self.rest = [], b""
        self._append(self._main.decode(piece))
        self._num_read = len(tokens)

    def _append(self, text: bytes) -> None:
        text = self.rest + text
        size = whole_characters(text)
        text, self.rest = text[:size], text[size:]
        if text:
            window = self._draft.decode(self.ids[self.num_stable :])
            self.ids[self.num_stable :] = self._draft.encode(window + text)
            # The window of the next text begins at a space, if it can.
            end, of = len(self.ids), self._draft.bytes_of
            first = max(end - MAX_WINDOW, self.num_stable, min(end, 1))
            starts = range(end - REENCODED, first, -1)
            spaces = (start for start in starts if of[self.ids[start]][:1].isspace())
            self.num_stable = next(spaces, first)


def whole_characters(text: bytes) -> int:
    """The number of bytes before an unfinished UTF-8 character at the end."""
    return utf_8_decode(text, "surrogateescape")[1]


@dataclass(frozen=True)
class TokenizerPair:
    """The tokenizers of two models, and how they are paired.

    main_size, draft_size: ids that each model scores. pairing: as requested.
    """

    main: PieceTokenizer
    draft: PieceTokenizer
    main_size: int
    draft_size: int
    pairing: PairingName = "auto"

    @cached_property
    def special(self) -> dict[int, int]:
        """Special tokens of one role, or else of one name, by the main model's id."""
        pairs = {}
        if self.main.eos_token_id is not None and self.draft.eos_token_id is not None:
            pairs[self.main.eos_token_id] = self.draft.eos_token_id
        for name, token in self.main.special.items():
            partner = self.draft.special.get(name)
            if partner is not None and token not in pairs and partner not in pairs.values():
                pairs[token] = partner
        return pairs

    @cached_property
    def common(self) -> NDArray[np.int64]:
        """The tokens that stand for the same bytes, or for the same role, [2, n].

        The main model's ids and the draft's. If a vocabulary has several for the same bytes, such
        as a letter and its byte fallback, letter maps to letter and fallback to fallback; the rest
        has no partner.
        """
        sizes = self.main_size, self.draft_size
        main_ids, draft_ids = map(_ids_by_bytes, (self.main, self.draft), sizes)
        pairs = [
            pair
            for data, ids in main_ids.items()
            for pair in zip(ids, draft_ids.get(data, ()), strict=False)
        ]
        special = self.special.items()
        pairs += [pair for pair in special if pair[0] < sizes[0] and pair[1] < sizes[1]]
        return np.array(sorted(pairs), np.int64).reshape(-1, 2).T

    @cached_property
    def draft_of(self) -> dict[int, int]:
        """The draft's id of each common token, by the main model's."""
        return dict(self.common.T.tolist())

    @cached_property
    def share_of_text(self) -> float:
        """The share of the main model's tokens of sample texts that the draft has too."""
        ids = [token for text in PROBES for token in self.main.encode(text.encode())]
        return sum(token in self.draft_of for token in ids) / len(ids)

    def translation(self) -> Translation:
        """A translation of a new sequence from the main model's ids to the draft's."""
        return Translation(self.main, self.draft, self.special)

    def translate(self, tokens: Sequence[int]) -> list[int]:
        """Ids of the main model translated to the draft's."""
        translation = self.translation()
        translation.read(tokens)
        return translation.ids

    @cached_property
    def used(self) -> UsedPairing:
        """The chosen pairing."""
        if self.pairing == "auto":
            return "intersection" if self.share_of_text >= ENOUGH_IN_COMMON else "retokenize"
        return self.pairing

    def require_possible(self) -> None:
        """Refuse an intersection of vocabularies that share no text."""
        if self.pairing == "intersection" and not self.share_of_text:
            raise TokenizerMismatchError(
                "{pairing} is not possible, for main and draft have no token of ordinary text in "
                "common: use {retokenize}",
                pairing="intersection",
                retokenize=Option("pairing", "retokenize"),
            )

    def lines(self) -> Iterator[str]:
        """The possible pairings as text."""
        common = self.common[0]
        yield (
            f"common tokens: {len(common)}, {len(common) / self.main_size:.0%} of the main model's "
            f"{self.main_size} and {len(common) / self.draft_size:.0%} of the draft's "
            f"{self.draft_size}; {self.share_of_text:.0%} of sample texts"
        )
        if len(common):
            longest = sorted(common.tolist(), key=lambda token: -len(self.main.bytes_of[token]))
            step = max(len(longest) // NUM_EXAMPLES, 1)
            shown = [self.main.bytes_of[token] for token in longest[::step][:NUM_EXAMPLES]]
            yield "  such as " + ", ".join(repr(data.decode(errors="replace")) for data in shown)
        names = (["intersection"] if self.share_of_text else []) + ["retokenize"]
        yield f"pairings: {', '.join(names)}; auto is {replace(self, pairing='auto').used}"


def _ids_by_bytes(tokenizer: PieceTokenizer, size: int) -> dict[bytes, list[int]]:
    """Ids by their bytes, byte-fallback tokens last."""
    found = defaultdict[bytes, list[int]](list)
    ids = range(min(size, len(tokenizer.bytes_of)))
    for token in sorted(ids, key=tokenizer.fallbacks.__contains__):
        if data := tokenizer.bytes_of[token]:
            found[data].append(token)
    return found
