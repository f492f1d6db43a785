"""Tokens to text: whole characters only, and never a piece of a stop string."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ov_specdec.text.detokenizer import IncrementalDetokenizer


def decode(tokens):
    """A byte-level tokenizer: token i is byte i."""
    return bytes(tokens).decode("utf-8", errors="replace")


def stream(text, stops=(), prompt=b"", cut=None):
    """Push a text's bytes one by one; the pieces that could be shown, and the stream."""
    shown = IncrementalDetokenizer(decode, list(prompt), stops)
    pieces = []
    for byte in text.encode()[:cut]:
        if shown.push([byte]) and shown.stopped:
            break
        pieces.append(shown.take())
    pieces.append(shown.finish())
    return pieces, shown


def test_a_character_is_shown_when_it_is_whole():
    pieces, _ = stream("aé😀b")
    assert pieces == ["a", "", "é", "", "", "", "😀", "b", ""]


def test_an_unfinished_character_is_shown_at_the_end():
    pieces, shown = stream("a😀", cut=3)
    assert "".join(pieces) == shown.text == "a\ufffd"


def test_the_output_stops_short_of_a_stop_string():
    pieces, shown = stream("one END two", ["END"])
    assert shown.stopped
    assert "".join(pieces) == shown.text == "one "


def test_nothing_of_a_stop_string_is_shown_before_it_is_ruled_out():
    pieces, shown = stream("a EN E END b", ["END"])
    assert pieces[:6] == ["a", " ", "", "", "EN ", ""]
    assert "".join(pieces) == shown.text == "a EN E "


def test_what_was_held_back_is_shown_when_the_text_just_ends():
    pieces, shown = stream("a EN", ["END"])
    assert "".join(pieces) == "a EN"
    assert not shown.stopped


def test_the_earliest_of_several_stop_strings_counts():
    assert stream("a xyz", ["z", "xyz"])[1].text == "a "


def test_a_stop_string_may_begin_in_one_round_and_end_in_the_next():
    shown = IncrementalDetokenizer(decode, [], ["a b"])
    assert shown.push(list(b"xa")) == 2
    assert shown.take() == "x"
    assert shown.push(list(b" bcd")) == 2, "tokens after the one that completes it do not count"
    assert shown.stopped
    assert shown.text == "x"


def test_a_stop_string_in_the_prompt_is_no_stop():
    assert stream("x", ["END"], prompt=b"END")[1].text == "x"


def test_a_space_that_decoders_drop_at_the_beginning_is_kept():
    words = ["", "▁def", "▁f"]

    def decode_words(tokens):
        return "".join(words[token] for token in tokens).replace("▁", " ").removeprefix(" ")

    shown = IncrementalDetokenizer(decode_words, [1])
    shown.push([2])
    assert shown.take() == " f"


@given(st.text(max_size=40), st.lists(st.text(min_size=1, max_size=3), max_size=3))
def test_pieces_add_up_to_the_text_before_the_first_stop_string(text, stops):
    pieces, shown = stream(text, stops)
    ends = [text.find(stop) for stop in stops if stop in text]
    if not ends:
        assert "".join(pieces) == shown.text == text
        return
    # With several, the one that is complete first ends the text.
    first_end = min(text.find(stop) + len(stop) for stop in stops if stop in text)
    prefix = text[:first_end]
    assert shown.text == prefix[: min(prefix.find(stop) for stop in stops if stop in prefix)]
    assert "".join(pieces) == shown.text


@pytest.mark.parametrize("size", [1, 2, 3, 7, 40])
def test_rounds_of_any_size_give_the_same_text(size):
    text = "def größe(x): # 😀 naïve END tail"
    tokens = list(text.encode())
    shown = IncrementalDetokenizer(decode, list(b"prompt"), ["END"])
    pieces = []
    for start in range(0, len(tokens), size):
        shown.push(tokens[start : start + size])
        pieces.append(shown.take())
        if shown.stopped:
            break
    assert "".join(pieces) + shown.finish() == "def größe(x): # 😀 naïve "
