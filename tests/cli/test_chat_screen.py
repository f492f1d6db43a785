"""Answers as they are shown, whatever the pieces that they arrive in."""

import pytest

from ov_specdec.cli import chat
from ov_specdec.results.chunks import Chunk
from ov_specdec.results.stats import GenerationStats

LAST = Chunk("", [], "plain", finish_reason="stop", stats=GenerationStats(1))


class Stream:
    """An answer of these chunks."""

    def __init__(self, *chunks):
        self.chunks = iter([*chunks, LAST])

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def __next__(self):
        return next(self.chunks)

    def __iter__(self):
        return self


def test_accepted_draft_tokens_have_a_colour(capsys, monkeypatch):
    monkeypatch.setattr("click.utils.should_strip_ansi", lambda *_: False)
    for no_color, green in ((False, "\x1b[38;2;0;158;115md\te f\x1b[0m"), (True, "d\te f\x1b[0m")):
        monkeypatch.setattr(chat.console, "no_color", no_color)
        chunks = Chunk("a\t[b]\n", [1], "plain"), Chunk("d\te f", [2], "draft")
        answer = chat.show_answer(Stream(*chunks), is_typed=False, show_draft=True)
        assert capsys.readouterr().out == f"a\t[b]\n\x1b[0m{green}\n"
        assert answer.text == "a\t[b]\nd\te f"


@pytest.mark.parametrize("show_draft", [False, True])
def test_what_is_no_terminal_gets_the_text_as_it_is(capsys, show_draft):
    text = "a\t[b] " + 90 * "c" + " 模型 d"
    stream = Stream(Chunk(text, [1], "plain"))
    chat.show_answer(stream, is_typed=False, show_draft=show_draft)
    assert capsys.readouterr().out == f"{text}\n"
