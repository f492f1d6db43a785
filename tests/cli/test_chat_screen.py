"""Answers in a terminal: broken between words, whatever the pieces that they arrive in."""

import io
import re
import textwrap

import numpy as np
import pytest
from rich.cells import cell_len
from rich.console import Console

from ov_specdec.cli.chat.terminal import showing
from ov_specdec.results.chunks import Chunk


class Terminal(io.StringIO):
    """A file that takes itself for a terminal."""

    def isatty(self):
        return True


def written(pieces, width=40, *, file=None, show_draft=False, **settings):
    """What is written for these texts or chunks."""
    file = Terminal() if file is None else file
    chunks = [p if isinstance(p, Chunk) else Chunk(p, [1], "plain") for p in pieces]
    output = Console(file=file, width=width, **settings)
    assert list(showing(chunks, output, show_draft=show_draft)) == chunks
    return file.getvalue()


def lines(shown, width):
    """The lines of a terminal of this width after what was written to it."""
    rows = [[]]
    for again, character in re.findall(r"(\r\x1b\[0?K)|([^\r])", shown):
        if again:
            rows[-1] = []
        elif character == "\n":
            rows.append([])
        else:
            if len(rows[-1]) + cell_len(character) > width:  # as a terminal breaks lines
                rows.append([])
            rows[-1] += [character, *[""] * (cell_len(character) - 1)]
    return ["".join(row) for row in rows]


def in_pieces(text, source):
    while text:
        size = int(source.integers(1, 8))
        yield text[:size]
        text = text[size:]


@pytest.mark.parametrize("seed", range(20))
def test_lines_are_broken_between_words_as_those_of_the_whole_text(seed):
    source = np.random.default_rng(seed)
    width = int(source.integers(13, 31))
    words = ["x" * int(source.integers(1, 11)) for _ in range(80)]
    text = "".join(word + source.choice((" ", " ", " ", ", ", "\n", "\n\n  ")) for word in words)
    shown = lines(written(in_pieces(text, source), width, color_system=None), width)
    expected = []
    for line in text.split("\n"):
        own = textwrap.wrap(line, width, break_on_hyphens=False, break_long_words=False)
        expected += own or [""]
    assert [line.rstrip() for line in shown] == [line.rstrip() for line in expected]


def test_what_is_longer_than_a_line_is_broken_within():
    shown = written(["at ", "x" * 25, " then y"], 10)
    assert lines(shown, 10) == ["at ", "x" * 10, "x" * 10, "xxxxx then", "y"]


def test_languages_without_spaces_are_broken_at_any_character():
    shown = written(["模型", "很快，Ok", " 它们"], 9)  # noqa: RUF001
    assert max(map(cell_len, lines(shown, 9))) <= 9
    assert "".join(lines(shown, 9)).replace(" ", "") == "模型很快，Ok它们"  # noqa: RUF001


def test_accepted_draft_tokens_have_a_colour():
    chunks = [Chunk("a\t[b]\n", [1], "plain"), Chunk("d\te f", [2], "draft")]
    colours = {"show_draft": True, "color_system": "truecolor", "force_terminal": True}
    assert written(chunks, **colours).endswith("\x1b[38;2;0;158;115me f\x1b[0m")
    for no_color, shown in ((False, "\x1b[38;2;0;158;115md\te f\x1b[0m"), (True, "d\te f")):
        redirected = written(chunks, file=io.StringIO(), no_color=no_color, **colours)
        assert redirected == f"a\t[b]\n{shown}"


@pytest.mark.parametrize("show_draft", [False, True])
def test_what_is_no_terminal_gets_the_text_as_it_is(capsys, show_draft):
    text = "a\t[b] " + 90 * "c" + " 模型 d"
    file = io.StringIO()
    written([text], 20, file=file, show_draft=show_draft)
    assert file.getvalue() + capsys.readouterr().out == text
