"""The bytes of single tokens, by the kind of the tokenizer."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

SPACE = "\u2581"
"""sentencepiece writes it for a space."""

BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")


def bytes_reader(spec: Mapping[str, Any]) -> Callable[[str], bytes] | None:
    """A function from a token's name to its bytes; the name of an added token is its text.

    spec: the content of tokenizer.json. None for a tokenizer that is neither byte-level BPE nor
    sentencepiece.
    """
    added = {token["content"] for token in spec["added_tokens"]}
    kinds = {
        part["type"]
        for name in ("normalizer", "pre_tokenizer", "decoder")
        for part in _parts(spec.get(name))
    }
    if "ByteLevel" in kinds:
        return lambda token: token.encode() if token in added else _byte_level(token)
    return _sentencepiece if kinds & {"Metaspace", "ByteFallback"} else None


def as_text(piece: bytes) -> str:
    """The bytes of a token as text; those of a part of a character in Python's notation."""
    return piece.decode(errors="backslashreplace")


def _parts(part: dict[str, Any] | None) -> Iterator[dict[str, Any]]:
    """A component and its own components."""
    if part is not None:
        yield part
        for name in ("normalizers", "pretokenizers", "decoders"):
            for inner in part.get(name, ()):
                yield from _parts(inner)


def _byte_level(token: str) -> bytes:
    """One byte for each character; a token with any other character is plain text."""
    if all(character in BYTE_OF for character in token):
        return bytes([BYTE_OF[character] for character in token])
    return token.encode()


def _sentencepiece(token: str) -> bytes:
    found = BYTE_TOKEN.fullmatch(token)
    return bytes([int(found[1], 16)]) if found else token.replace(SPACE, " ").encode()


def _byte_characters() -> dict[str, int]:
    """The byte of each character in a byte-level vocabulary.

    Printable characters of Latin-1 are their own bytes, those from 256 on the other bytes in order.
    Source: `bytes_to_unicode` of GPT-2.
    """
    shown = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [code for code in range(256) if code not in shown]
    return {chr(code): code for code in shown} | {
        chr(256 + index): code for index, code in enumerate(others)
    }


BYTE_OF = _byte_characters()
