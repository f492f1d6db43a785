"""Tokens as bytes, and bytes as tokens, of byte-level and sentencepiece tokenizers."""

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import models, pre_tokenizers

from ov_specdec import TokenizerMismatchError
from ov_specdec.text.guard import PROBES
from ov_specdec.text.pairing import PieceTokenizer
from ov_specdec.text.tokenizer import load_tokenizer
from tests.support.chats import save_byte_fallback
from tests.support.tiny import save_tokenizer

UNKNOWN = "<unk>"


@pytest.fixture(params=["byte-level", "sentencepiece", "metaspace"])
def tokenizer(request, tmp_path):
    if request.param == "byte-level":
        save_tokenizer(tmp_path)
    else:
        save_byte_fallback(tmp_path, metaspace=request.param == "metaspace")
    return load_tokenizer(tmp_path)


@pytest.mark.parametrize("text", PROBES)
def test_any_piece_of_text_comes_back(tokenizer, text):
    pieces = PieceTokenizer(tokenizer)
    assert pieces.decode(pieces.encode(text.encode())) == text.encode()


def test_parts_of_characters_come_back(tokenizer):
    pieces = PieceTokenizer(tokenizer)
    text = "é日😀".encode()
    for start in range(len(text)):
        for end in range(start, len(text) + 1):
            assert pieces.decode(pieces.encode(text[start:end])) == text[start:end]


def test_a_tokenizer_knows_its_own_pieces(tokenizer):
    pieces = PieceTokenizer(tokenizer)
    for name, token in tokenizer.vocab.items():
        own = name.encode() if token in pieces.special.values() else pieces.bytes_of[token]
        assert tokenizer.piece(token) == own
    assert tokenizer.piece(tokenizer.vocab_size) == b""


def test_special_tokens_have_no_bytes_and_no_text_is_read_as_one(tokenizer):
    pieces = PieceTokenizer(tokenizer)
    assert pieces.eos_token_id in pieces.special.values()
    for name, token in pieces.special.items():
        assert pieces.decode([token]) == b""
        assert token not in pieces.encode(name.encode())
        assert pieces.decode(pieces.encode(name.encode())) == name.encode()


def test_the_prefix_is_what_the_model_expects_before_a_text(tokenizer):
    expected = [tokenizer.vocab[name] for name in ("<s>",) if name in tokenizer.vocab]
    assert PieceTokenizer(tokenizer).prefix == expected


def test_what_a_vocabulary_has_no_tokens_for_is_left_out(tmp_path):
    backend = Backend(models.BPE(vocab={"<unk>": 0, "a": 1, "b": 2}, merges=[], unk_token=UNKNOWN))
    backend.add_special_tokens(["<unk>"])
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.save(str(tmp_path / "tokenizer.json"))
    pieces = PieceTokenizer(load_tokenizer(tmp_path))
    assert pieces.encode(b"axb\xff") == [1, 2]


def test_other_kinds_of_tokenizers_are_refused(tmp_path):
    backend = Backend(models.WordLevel({UNKNOWN: 0}, unk_token=UNKNOWN))
    backend.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(TokenizerMismatchError, match="neither a byte-level nor"):
        PieceTokenizer(load_tokenizer(tmp_path))
    assert load_tokenizer(tmp_path).piece(0) == UNKNOWN.encode()
