"""Tokens as bytes, and bytes as tokens, of byte-level and sentencepiece tokenizers."""

import json

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from ov_specdec import TokenizerMismatchError
from ov_specdec.text.guard import PROBES
from ov_specdec.text.pairing import PieceTokenizer
from ov_specdec.text.tokenizer import load_tokenizer
from tests.support.tiny import EOS, save_tokenizer

UNKNOWN = "<unk>"
SENTENCES = ("the cat sat on the mat", "def f(x):\n    return x", "aA")


def save_sentencepiece(folder, *, vocab_size=300, metaspace=False):
    """Save a BPE as sentencepiece has it: a sign for the space, fallback to bytes, a BOS."""
    backend = Backend(models.BPE(byte_fallback=True, unk_token=UNKNOWN))
    backend.normalizer = normalizers.Sequence(
        [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
    )
    if metaspace:
        backend.normalizer = None
        backend.pre_tokenizer = pre_tokenizers.Metaspace(split=False)
    backend.decoder = decoders.Sequence(
        [
            decoders.Replace("\u2581", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    codes = [f"<0x{code:02X}>" for code in range(256)]
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size + 256 + 80,
        special_tokens=["<unk>", "<s>", "</s>", *codes],
        show_progress=False,
    )
    backend.train_from_iterator(SENTENCES * 3, trainer)
    spec = json.loads(backend.to_str())
    spec["added_tokens"] = spec["added_tokens"][:3]  # the codes are tokens as others are
    backend = Backend.from_str(json.dumps(spec))
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 1)]
    )
    folder.mkdir(exist_ok=True)
    backend.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text('{"bos_token": "<s>", "eos_token": "</s>"}')


@pytest.fixture(params=["byte-level", "sentencepiece", "metaspace"])
def tokenizer(request, tmp_path):
    if request.param == "byte-level":
        save_tokenizer(tmp_path)
    else:
        save_sentencepiece(tmp_path, metaspace=request.param == "metaspace")
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
    expected = [] if EOS in tokenizer.vocab else [tokenizer.vocab["<s>"]]
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
