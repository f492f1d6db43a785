"""The recording of a terminal: what is kept of what a command writes. Nothing is run."""

from tests.docs.recording import Line, draw, lines_of


def test_a_line_stands_as_it_was_in_the_end_and_came_last():
    pieces = [
        (5.0, b"10 %\r100"),
        (6.0, b" %\rdone\r\n\x1b[2K\x1b[1mbo"),
        (7.5, b"ld\x1b[0m\n\nend"),
    ]
    assert lines_of(pieces, begin=2.0) == [
        Line("done", 3.0),
        Line("\x1b[1mbold\x1b[0m", 4.5),
        Line("end", 4.5),
    ]


def test_a_line_that_was_erased_is_gone_and_a_long_one_is_wrapped():
    assert lines_of([(0.0, b"bar\n\r\x1b[1A\x1b[2Kdone\n")], begin=0.0) == [Line("done", 0.0)]
    assert draw([Line("word " * 30, 0.0)]).count("terminal-line-1)") >= 1


def test_lines_appear_when_they_came_and_waits_are_cut():
    svg = draw([Line("$ one", 0.0), Line("two", 1.25), Line("three", 9.0)])
    for number, seconds in ((1, "1.25"), (2, "2.75")):
        rule = f'line-{number})"] {{ animation: come 0.1s {seconds}s both }}'
        assert rule in svg
    assert "url(http" not in svg, "nothing is fetched"
