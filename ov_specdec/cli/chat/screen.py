"""What a chat shows: answers as they arrive, broken between words in a terminal, and notes."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain

import click
from rich.console import Console
from rich.control import Control
from rich.segment import ControlType, Segment, Segments
from rich.style import Style
from rich.text import Text

from ov_specdec.cli.messages import interrupts_call
from ov_specdec.cli.terminal import console
from ov_specdec.generation.text_generator import GenerationStream
from ov_specdec.results.chunks import Chunk, GenerationResult, collect
from ov_specdec.results.origins import GREEN

ACCEPTED = Style(color=GREEN)

AGAIN = Control(ControlType.CARRIAGE_RETURN, (ControlType.ERASE_IN_LINE, 0))

Begin = Callable[[], GenerationStream]


@contextmanager
def cancelled_by_interrupts(begin: Begin) -> Iterator[GenerationStream]:
    """The stream that `begin` returns; meanwhile Ctrl-C only cancels it."""
    early: list[bool] = []
    with (
        interrupts_call(lambda: early.append(True)),
        begin() as stream,
        interrupts_call(stream.cancel),
    ):
        if early:
            stream.cancel()
        yield stream


def show_answer(begin: Begin, *, is_typed: bool, show_draft: bool) -> GenerationResult:
    """Show an answer as it arrives; until then a spinner on stderr."""
    with cancelled_by_interrupts(begin) if is_typed else begin() as stream:
        with console.status("Reading"):
            first = next(stream)
        try:
            return collect(showing(chain([first], stream), Console(), show_draft=show_draft))
        finally:
            click.echo()


def showing(chunks: Iterable[Chunk], output: Console, *, show_draft: bool) -> Iterator[Chunk]:
    """Show the text of each chunk before it is yielded. show_draft: colour accepted tokens.

    Rich decides whether the output has colours; NO_COLOR disables them.
    """
    wraps = output.file.isatty() and not output.is_dumb_terminal
    line, spaces = Text(), ""  # spaces at the end of the text: the line may be broken there
    for chunk in chunks:
        style = ACCEPTED if show_draft and chunk.from_draft else None
        if wraps:
            text = spaces + chunk.text
            word = text.rstrip(" \t")
            spaces, start = text[len(word) :], len(line)
            lines = line.append(word, style).wrap(output, output.width)
            with output:  # one write
                if lines[1:]:  # write the line again, with line breaks
                    output.control(AGAIN)
                    start = 0
                output.print(Text("\n").join(lines)[start:], end="", soft_wrap=True)
            line = lines[-1]
        elif show_draft:
            # As a segment: rich would wrap a text and replace its tabs.
            output.print(Segments([Segment(chunk.text, style)]), soft_wrap=True)
        else:
            click.echo(chunk.text, nl=False)
        yield chunk


def describe(result: GenerationResult) -> str:
    """The statistics of an answer in one line, with the limit that ended it, if any."""
    stats, reason = result.stats, result.finish_reason
    budget = f"ended by --max-new-tokens {stats.generated_tokens}"
    parts = {
        f"{stats.generated_tokens} tokens, {stats.tokens_per_second:.1f} tokens/s": True,
        f"{stats.acceptance_rate:.0%} of {stats.drafted} draft tokens accepted": stats.drafted,
        f"draft failures {stats.draft_failures}": stats.draft_failures,
        f"{stats.cached_tokens} of {stats.prompt_tokens} prompt tokens reused": True,
        "cancelled": reason == "cancelled",
        result.ending.remedy_in_chat or budget: reason == "length",
        f"ended by the {result.finish_message}": stats.stop_string is not None,
    }
    return " | ".join(part for part, applies in parts.items() if applies)


def note(text: str) -> None:
    """Show a note, dim, on stderr."""
    console.print(text, style="dim", markup=False, soft_wrap=not console.is_terminal)
