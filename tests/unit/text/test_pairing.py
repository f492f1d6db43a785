"""What two tokenizers have in common, and which pairing suits them."""

import json
from dataclasses import replace

import numpy as np
import pytest

from ov_specdec import TokenizerMismatchError
from ov_specdec.text.pairing import PieceTokenizer, TokenizerPair
from ov_specdec.text.tokenizer import load_tokenizer
from tests.support.chats import save_byte_fallback
from tests.support.tiny import EOS, save_tokenizer


@pytest.fixture
def make(tmp_path):
    """A byte-level tokenizer, or one of the kind of sentencepiece."""

    def run(name, *, kind=save_tokenizer, change=None, **options):
        folder = tmp_path / name
        kind(folder, **options)
        if change is not None:
            spec = json.loads((folder / "tokenizer.json").read_text())
            change(spec)
            (folder / "tokenizer.json").write_text(json.dumps(spec))
        return PieceTokenizer(load_tokenizer(folder))

    return run


def pair(main, draft):
    return TokenizerPair(main, draft, len(main.bytes_of), len(draft.bytes_of))


def test_tokens_of_the_same_bytes_go_together_one_to_one(make):
    main = make("main")
    draft = make("draft", sample="the quick brown fox" * 3)
    both = pair(main, draft)
    main_ids, draft_ids = both.common
    assert len(set(main_ids.tolist())) == len(main_ids) > 256
    assert len(set(draft_ids.tolist())) == len(draft_ids)
    for a, b in both.draft_of.items():
        assert main.bytes_of[a] == draft.bytes_of[b]
    outside = set(range(len(main.bytes_of))) - set(both.draft_of)
    known = {data for data in draft.bytes_of if data}
    assert outside
    assert all(main.bytes_of[token] not in known for token in outside)


def test_a_letter_goes_with_the_letter_and_the_fallback_with_the_fallback(make):
    one = make("one", kind=save_byte_fallback)
    other = make("other", kind=save_byte_fallback, sample="the quick brown fox")
    draft_of = pair(one, other).draft_of
    letter, code = (one._backend.token_to_id(token) for token in ("a", "<0x61>"))
    partners = [other._backend.token_to_id(token) for token in ("a", "<0x61>")]
    assert [draft_of[letter], draft_of[code]] == partners


def test_a_letter_is_preferred_to_the_fallback_of_the_same_bytes(make):
    main, draft = make("main", kind=save_byte_fallback), make("draft")
    common = pair(main, draft)
    assert main._backend.token_to_id("a") in common.draft_of
    assert main._backend.token_to_id("<0x61>") not in common.draft_of
    assert main._backend.token_to_id("<0xE2>") in common.draft_of, "which has no letter beside it"


def rename_eos(spec):
    for added in spec["added_tokens"]:
        added["content"] = "<end>"
    spec["model"]["vocab"]["<end>"] = spec["model"]["vocab"].pop(EOS)


def test_what_ends_a_text_goes_with_what_ends_a_text_and_others_by_name(make):
    main, draft = make("main"), make("draft", kind=save_byte_fallback)
    special = pair(main, draft).special
    assert special == {main.eos_token_id: draft.eos_token_id}
    one = make("one", kind=save_byte_fallback)
    assert pair(one, draft).special == {one.special[n]: draft.special[n] for n in one.special}
    renamed = make("renamed", change=rename_eos)
    assert renamed.eos_token_id is None
    assert pair(main, renamed).special == {}


def test_ids_that_a_model_does_not_score_are_left_out(make):
    main, draft = make("main"), make("draft")
    main_ids, draft_ids = TokenizerPair(main, draft, 100, 50).common
    assert np.array_equal(main_ids, np.arange(50))
    assert np.array_equal(draft_ids, np.arange(50))


def test_auto_takes_the_intersection_where_most_of_a_text_is_in_common(make):
    main, alike = make("main"), make("alike")
    assert pair(main, alike).share_of_text == 1.0
    assert pair(main, alike).used == "intersection"
    far = make("far", sample="the quick brown fox " * 3 + "é日😀", vocab_size=300)
    assert pair(far, alike).share_of_text < 1.0
    for name in ("intersection", "retokenize"):
        assert replace(pair(main, alike), pairing=name).used == name


def test_an_intersection_of_nothing_is_refused(make):
    main, draft = make("main"), make("draft", change=rename_eos)
    nothing = TokenizerPair(main, draft, len(main.bytes_of), 1)
    with pytest.raises(TokenizerMismatchError, match="no token of ordinary text in common"):
        replace(nothing, pairing="intersection").require_possible()
    assert nothing.used == "retokenize"
    assert "pairings: retokenize; auto is retokenize" in list(nothing.lines())
