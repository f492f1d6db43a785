"""A main model's ids as a draft model's, while the sequence grows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ov_specdec.text.guard import PROBES
from ov_specdec.text.pairing import PieceTokenizer, Translation, whole_characters
from ov_specdec.text.tokenizer import load_tokenizer
from tests.support.chats import save_byte_fallback
from tests.support.tiny import save_tokenizer


@pytest.fixture(scope="module")
def pieces(tmp_path_factory):
    """Two byte-level tokenizers and one of the kind of sentencepiece."""
    folders = [tmp_path_factory.mktemp(name) for name in ("code", "prose", "sentencepiece")]
    save_tokenizer(folders[0])
    save_tokenizer(folders[1], sample="the quick brown fox jumps over the lazy dog\n" * 3)
    save_byte_fallback(folders[2])
    names = ("code", "prose", "sentencepiece")
    return {
        name: PieceTokenizer(load_tokenizer(path))
        for name, path in zip(names, folders, strict=True)
    }


def translation(pieces, main, draft):
    special = {pieces[main].eos_token_id: pieces[draft].eos_token_id}
    return Translation(pieces[main], pieces[draft], special)


PAIRS = [("code", "prose"), ("prose", "sentencepiece"), ("sentencepiece", "code")]


@pytest.mark.parametrize("text", PROBES)
@pytest.mark.parametrize("pair", PAIRS)
def test_the_text_is_the_same_at_every_step_and_what_is_settled_stays(pieces, pair, text):
    main, draft = (pieces[name] for name in pair)
    tokens = main.encode(text.encode())
    translated, settled = translation(pieces, *pair), []
    for end in range(1, len(tokens) + 1):
        translated.read(tokens[:end])
        known = translated.ids[len(draft.prefix) :]
        assert draft.decode(known) + translated.rest == main.decode(tokens[:end])
        assert len(translated.rest) < 4
        assert translated.ids[: len(settled)] == settled
        settled = translated.ids[: translated.num_stable]
    assert translated.rest == b""


def test_a_word_that_grows_is_encoded_anew(pieces):
    main, draft = pieces["prose"], pieces["code"]
    text = b"x return width"
    assert len(draft.encode(text)) < len(text), "the draft has tokens of several letters here"
    translated = translation(pieces, "prose", "code")
    for end in range(1, len(main.encode(text)) + 1):
        translated.read(main.encode(text)[:end])
    assert translated.ids == draft.encode(text)


def test_special_tokens_come_through_by_role_and_others_are_left_out(pieces):
    main, draft = pieces["sentencepiece"], pieces["code"]
    translated = translation(pieces, "sentencepiece", "code")
    bos = main.special["<s>"]
    translated.read([bos, *main.encode(b"the cat"), main.eos_token_id, *main.encode(b"sat")])
    eos = draft.eos_token_id
    assert translated.ids == [*draft.encode(b"the cat"), eos, *draft.encode(b"sat")]


@given(st.binary(max_size=12))
def test_whole_characters_are_all_but_an_unfinished_one(data):
    size = whole_characters(data)
    assert len(data) - 3 <= size <= len(data)
    text = data.decode(errors="ignore").encode()
    if data.startswith(text) and len(text) == len(data):
        assert size == len(data)
