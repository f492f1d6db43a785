"""Shows the text of an answer: broken between words in a terminal, elsewhere as it is."""

import click
from rich.console import Console
from rich.control import Control
from rich.segment import ControlType, Segment, Segments
from rich.style import Style
from rich.text import Text

from ov_specdec.results.chunks import Chunk
from ov_specdec.results.origins import GREEN

ACCEPTED = Style(color=GREEN)


class Screen:
    """Shows the chunks of one answer, with show_draft accepted draft tokens in a colour.

    Rich decides whether the output has colours; NO_COLOR disables them.
    """

    def __init__(self, output: Console, *, show_draft: bool) -> None:
        self._output = output
        self._accepted = ACCEPTED if show_draft else None
        self._wraps = output.file.isatty() and not output.is_dumb_terminal
        self._line = Text()
        self._spaces = ""
        """At the end of the text: the line may be broken there."""

    def show(self, chunk: Chunk) -> None:
        """Show a chunk's text."""
        style = self._accepted if chunk.from_draft else None
        if self._wraps:
            self._wrap(chunk.text, style)
        elif self._accepted:
            # As a segment: rich would wrap a text and replace its tabs.
            self._output.print(Segments([Segment(chunk.text, style)]), soft_wrap=True)
        else:
            click.echo(chunk.text, nl=False)
        self._output.file.flush()

    def _wrap(self, text: str, style: Style | None) -> None:
        """Show more of the line; if it is full, write it again with a line break."""
        text = self._spaces + text
        shown = text.rstrip(" \t")
        self._spaces = text[len(shown) :]
        length = len(self._line)
        *full, self._line = self._line.append(shown, style).wrap(self._output, self._output.width)
        new = self._line[length:]
        with self._output:  # one write
            if full:
                again = (ControlType.CARRIAGE_RETURN, (ControlType.ERASE_IN_LINE, 0))
                self._output.control(Control(*again))
                new = Text("\n").join([*full, self._line])
            self._output.print(new, end="", soft_wrap=True)
