"""Tokens to text: whole characters only, and never a piece of a stop string."""

import re
from itertools import accumulate
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from ov_specdec.models.locate import embedded_folder
from ov_specdec.text.detokenizer import MAX_UNFINISHED, IncrementalDetokenizer
from ov_specdec.text.tokenizer import BYTE_OF, load_tokenizer
from tests.support.chats import save_byte_fallback
from tests.support.tiny import save_tokenizer


def byte_piece(_before, token):
    """A byte-level tokenizer: token i is byte i."""
    return bytes([token])


def stream(text, stops=()):
    """Push a text's bytes one by one; the pieces that could be shown."""
    shown = IncrementalDetokenizer(byte_piece, [], stops)
    pieces = []
    for byte in text.encode():
        if shown.push([byte]) and shown.stop_string:
            break
        pieces.append(shown.take()[0])
    return [*pieces, shown.finish()[0]]


def test_a_character_is_shown_when_it_is_whole():
    pieces = stream("aé😀b")
    assert pieces == ["a", "", "é", "", "", "", "😀", "b", ""]


def test_nothing_of_a_stop_string_is_shown_before_it_is_ruled_out():
    pieces = stream("a EN E END b", ["END"])
    assert pieces[:6] == ["a", " ", "", "", "EN ", ""]
    assert "".join(pieces) == "a EN E "


LETTERS = dict(enumerate(["a", "b", " ", "ab", "<x", ">"]))
HIDDEN = {6: "<x>", 7: "<ab>"}
ALL = {**LETTERS, **HIDDEN}
LONGEST = 4


def piece_after(_before, token):
    return LETTERS[token].encode()


def expected_text(tokens, stops, min_tokens, includes_stop):
    """Tokens up to the stop string, their offsets, text, and the stop string, by definition."""
    searched, is_shown, offsets = "", [], []
    for count, token in enumerate(tokens, start=1):
        offsets.append(sum(is_shown))
        before = len(searched)
        searched += ALL[token]
        is_shown += [token in LETTERS] * len(ALL[token])
        ends = [
            (end - len(stop), len(stop), stop)
            for stop in stops
            for end in range(max(before + 1, len(stop)), len(searched) + 1)
            if searched.endswith(stop, 0, end)
        ]
        if ends and count > min_tokens:
            start, length, stop = min(ends)
            cut = start + length * includes_stop
            shown = zip(searched[:cut], is_shown, strict=False)
            return offsets, "".join(sign for sign, shows in shown if shows), stop
    return offsets, "".join(LETTERS[token] for token in tokens if token in LETTERS), None


@settings(max_examples=150)
@given(
    st.lists(st.sampled_from([*ALL]), max_size=20),
    st.lists(st.text("ab <x>", min_size=1, max_size=LONGEST), max_size=3),
    st.integers(0, 12),
    st.booleans(),
    st.integers(1, 5),
)
@example([0, 6, 1], ["<x>"], 0, False, 1)
@example([0, 6, 1], ["a<x>b"], 0, True, 3)
@example([0, 4, 5, 1], ["<x>"], 0, False, 1)
@example([0, 1, 0, 1], ["b"], 2, False, 4)
def test_stop_strings_see_special_tokens_which_are_not_shown(
    tokens, stops, min_tokens, includes_stop, size
):
    text = IncrementalDetokenizer(piece_after, [6, 0], stops, includes_stop, HIDDEN, min_tokens)
    offsets, pieces = [], []
    for start in range(0, len(tokens), size):
        offsets += text.push(tokens[start : start + size])
        pieces.append(text.take()[0])
        if text.stop_string:
            break
    pieces.append(text.finish()[0])
    found = offsets, "".join(pieces), text.stop_string
    assert found == expected_text(tokens, stops, min_tokens, includes_stop)


UNKNOWN = "<unk>"
CORPUS = ["def area(width, height):\n    return width * height\n", "ein Wort, noch ein Wort. été"]


def unigram():
    """As T5 and Gemma's kind have it: words with a mark for the space before them."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.train_from_iterator(
        CORPUS, trainers.UnigramTrainer(vocab_size=60, unk_token=UNKNOWN, special_tokens=[UNKNOWN])
    )
    return tokenizer


def word_piece():
    """As BERT has it: it says which tokens continue a word, and nothing of spaces."""
    words = ["area", "of", "##s", "the", "##re", UNKNOWN]
    tokenizer = Tokenizer(
        models.WordPiece({word: i for i, word in enumerate(words)}, unk_token=UNKNOWN)
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


def loaded(save):
    """A tokenizer that was saved as a model folder has it."""
    with TemporaryDirectory() as folder:
        save(Path(folder))
        return load_tokenizer(Path(folder))


def saved(backend):
    return lambda folder: backend.save(str(folder / "tokenizer.json"))


TOKENIZERS = {
    "byte_fallback": loaded(save_byte_fallback),
    "unigram": loaded(saved(unigram())),
    "byte_level": loaded(save_tokenizer),
}
SCRIPTS = (
    *("a鱻鱻鱻鱻鱻a", "敏捷的棕色狐狸", "빠른 갈색 여우", "الثعلب البني", "तेज़ भूरी लोमड़ी"),
    *(
        "Съешь же ещё",
        "שועל",
        "👩\u200d👩\u200d👧\u200d👦 🏳️\u200d🌈",
        "é e\u0301 ﬁ ½",
        "a  b\n\n  c",
        "\U0001d518\U0001d52b\U0001d526",
    ),
)


def streamed(tokenizer, prompt, output, sizes):
    """What the stream shows of the output's ids, pushed in chunks of the given sizes in turn."""

    hidden = tokenizer.special_tokens
    shown = IncrementalDetokenizer(tokenizer.piece_after, prompt, hidden=hidden)
    pieces, start = [], 0
    while start < len(output):
        size = sizes[len(pieces) % len(sizes)]
        shown.push(output[start : start + size])
        pieces.append(shown.take()[0])
        start += size
    return "".join(pieces) + shown.finish()[0]


def whole(tokenizer, prompt, output):
    """The text that the output's ids add to the prompt's, decoded all at once.

    A character that the prompt leaves unfinished belongs to the output.
    """
    sizes = range(len(prompt), -1, -1)
    texts = (tokenizer.decode(prompt[:size]) for size in sizes)
    before = next(text for text in texts if not text.endswith("\ufffd"))
    return tokenizer.decode([*prompt, *output]).removeprefix(before)


# Any text, and long runs of what no tokenizer here has a token for.
texts = st.lists(st.text(max_size=12) | st.sampled_from(SCRIPTS), max_size=6).map("".join)


@pytest.mark.parametrize("kind", TOKENIZERS)
@settings(max_examples=300)
@given(prompt=texts, text=texts, sizes=st.lists(st.integers(1, 12), min_size=1, max_size=4))
@example(prompt="鱻" * 9, text="鱻a", sizes=[1])
@example(prompt="", text="a鱻鱻鱻鱻鱻a", sizes=[1])
def test_any_text_is_shown_as_it_decodes_at_once(kind, prompt, text, sizes):
    tokenizer = TOKENIZERS[kind]
    before, output = tokenizer.encode(prompt), tokenizer.encode(text)
    assert streamed(tokenizer, before, output, sizes) == whole(tokenizer, before, output)


def bytes_of(content):
    """The ids of some bytes in the tokenizer that falls back to them."""
    return [TOKENIZERS["byte_fallback"]._backend.token_to_id(f"<0x{byte:02X}>") for byte in content]


def ids_of(character, *, in_bytes=True):
    """The ids of a character: its own one, where there is one and it is wanted, or its bytes."""
    own = TOKENIZERS["byte_fallback"]._backend.token_to_id(character.replace(" ", "▁"))
    return bytes_of(character.encode()) if in_bytes or own is None else [own]


NOTABLE = "a 😀한글鱻é\ufffd\u0301\u200d\0\x01\n\t\x7f\x80"
characters = st.characters(codec="utf-8") | st.sampled_from(NOTABLE)
NO_TEXT = ids_of("<s>", in_bytes=False)
chunk_sizes = st.lists(st.integers(1, 12), min_size=1, max_size=4)


@settings(max_examples=500)
@given(
    st.lists(st.builds(ids_of, characters, in_bytes=st.booleans()) | st.just(NO_TEXT), max_size=40),
    st.integers(0, 80),
    chunk_sizes,
)
@example([ids_of(c, in_bytes=c != "a") for c in "a😀😀😀한글"], 0, [1])
@example([*[ids_of("\ufffd")] * 12, ids_of("😀")], 0, [1])
@example([ids_of("\ufffd"), ids_of("글")], 5, [1])
@example([[*bytes_of(b"\xf0\x9f"), *NO_TEXT * 9, *bytes_of(b"\x98\x80")]], 0, [1])
def test_bytes_that_are_a_text_are_shown_as_they_decode_at_once(spelled, cut, sizes):
    tokenizer = TOKENIZERS["byte_fallback"]
    ids = [token for each in spelled for token in each]
    ends = accumulate(len(each) for each in spelled)
    before = ids[: max((end for end in ends if end <= cut), default=0)]  # whole characters
    text, known = (tokenizer.decode(each) for each in (ids, before))
    assert streamed(tokenizer, ids[:cut], ids[cut:], sizes) == text.removeprefix(known)


@settings(max_examples=500)
@given(st.lists(st.binary(max_size=12) | st.text(max_size=4).map(str.encode)), chunk_sizes)
@example(["鱻".encode() + b"\xff", b"\n", b"\x80" * 40, "글".encode()], [1])
def test_of_bytes_that_are_no_text_what_was_shown_stays(runs, sizes):
    tokenizer = TOKENIZERS["byte_fallback"]
    between = tokenizer._backend.token_to_id("*")
    ids, pattern = [], ""
    for run in (run.replace(b"*", b"") for run in runs):
        ids += [*bytes_of(run), between]
        begins = next(run[:end] for end in range(len(run), -1, -1) if is_text(run[:end]))
        pattern += re.escape(begins.decode()) + ("" if begins == run else "[^*]+") + r"\*"
    assert re.fullmatch(pattern, streamed(tokenizer, [between], ids, sizes))


def is_text(content):
    return content.decode(errors="replace").encode() == content


@pytest.fixture(scope="module")
def embedded():
    return load_tokenizer(embedded_folder("main"))


@pytest.fixture(scope="module")
def broken(embedded):
    """Ids that begin or end within a character."""
    return [i for i in range(embedded.vocab_size) if "\ufffd" in embedded.decode([i])]


@settings(max_examples=500)
@given(st.data(), chunk_sizes)
def test_any_ids_of_the_embedded_tokenizer_are_shown_as_they_decode(embedded, broken, data, sizes):
    tokens = st.integers(0, embedded.vocab_size - 1) | st.sampled_from(broken)
    ids = data.draw(st.lists(tokens, max_size=40))
    assert streamed(embedded, [], ids, sizes) == embedded.decode(ids)


@settings(max_examples=200)
@given(st.lists(st.sampled_from(["area", "areas", "of", "there", "the"]), max_size=9))
def test_words_without_spaces_are_shown_as_they_decode_at_once(words):
    tokenizer = loaded(saved(word_piece()))
    ids = tokenizer.encode(" ".join(words))
    assert streamed(tokenizer, [], ids, [1]) == " ".join(words)


@pytest.mark.parametrize("kind", ["byte_fallback", "byte_level"])
@pytest.mark.parametrize("in_prompt", [0, 5_000])
def test_ten_thousand_broken_bytes_are_shown_as_they_come(kind, in_prompt):
    tokenizer = TOKENIZERS[kind]
    names = ["<0x80>", chr(next(code for code, byte in BYTE_OF.items() if byte == 0x80))]
    [token] = [i for i in map(tokenizer._backend.token_to_id, names) if i is not None]
    ids = [token] * 10_000
    asked = []

    def piece_after(before, token):
        asked.append(token)
        return tokenizer.piece_after(before, token)

    shown = IncrementalDetokenizer(piece_after, ids[:in_prompt])
    shown.push(ids[in_prompt:])
    assert len(asked) <= len(ids[in_prompt:]) + MAX_UNFINISHED + 1
    assert shown.take()[0] == "\ufffd" * len(ids[in_prompt:])
