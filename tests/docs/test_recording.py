"""The picture of a terminal: what is kept of what a command writes. Nothing is run."""

from tests.docs.recording import draw, lines_of


def test_a_line_stands_as_it_was_in_the_end():
    written = b"10 %\r100 %\rdone\r\n\x1b[2K\x1b[1mbold\x1b[0m\n\nbar\n\r\x1b[1A\x1b[2Kend"
    assert lines_of(written) == ["done", "\x1b[1mbold\x1b[0m", "end"]
    svg = draw(["$ one", "word " * 30])
    assert svg.count("terminal-line-1)") >= 1
    assert "url(http" not in svg, "nothing is fetched"
