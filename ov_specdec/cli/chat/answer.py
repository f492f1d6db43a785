"""One answer of the model: streamed to stdout, cancelled by Ctrl-C, summarized in a line."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from itertools import chain

import click
from rich.console import Console
from rich.segment import Segment, Segments
from rich.style import Style

from ov_specdec.chunks import Chunk, GenerationResult, collect
from ov_specdec.cli.chat.commands import Chat
from ov_specdec.cli.chat.conversation import Conversation
from ov_specdec.cli.messages import interrupts_call
from ov_specdec.cli.terminal import console
from ov_specdec.generation import GenerationStream
from ov_specdec.palette import GREEN
from ov_specdec.pipeline import SpeculativePipeline

ShowChunk = Callable[[Chunk], None]
Begin = Callable[[], GenerationStream]
Start = Callable[[Begin], AbstractContextManager[GenerationStream]]

FULL = {
    "max_model_len": "the model's context is full: /undo or /clear makes room",
    "kv_cache_size": "the KV cache is full: /undo, /clear or a larger --kv-cache-size makes room",
}
"""Messages for an answer that was cut by a limit."""


def show_text(chunk: Chunk) -> None:
    """Print a chunk's text."""
    click.echo(chunk.text, nl=False)


def in_colours(output: Console) -> ShowChunk:
    """Prints chunks, accepted draft tokens in a colour.

    Rich decides whether the output has colours; NO_COLOR disables them.
    """
    accepted = Style(color=GREEN)

    def show(chunk: Chunk) -> None:
        # As segments: rich would wrap a text and replace its tabs.
        segment = Segment(chunk.text, accepted if chunk.from_draft else None)
        output.print(Segments([segment]), soft_wrap=True)
        output.file.flush()

    return show


@contextmanager
def cancelled_by_interrupts(begin: Begin) -> Iterator[GenerationStream]:
    """The stream that `begin` returns; meanwhile Ctrl-C only cancels it."""
    streams: list[GenerationStream] = []
    interrupted = False

    def cancel() -> None:
        nonlocal interrupted
        interrupted = True
        for stream in streams:
            stream.cancel()

    with interrupts_call(cancel), begin() as stream:
        streams.append(stream)
        if interrupted:  # before the stream existed
            stream.cancel()
        yield stream


def answer(
    models: SpeculativePipeline, show: ShowChunk, start: Start, chat: Chat, asked: Conversation
) -> Conversation:
    """Generate and show an answer, and a line of statistics. Returns the conversation with it.

    start: makes a context around the start of an answer, which handles Ctrl-C.
    """
    begin = partial(models.stream, asked.messages, **chat.next_options())
    result = read_answer(start(begin), show)
    note(describe(result, chat.settings.complete(chat.settings.given).max_new_tokens))
    if result.finish_reason == "cancelled" and not result.text:
        note("there is no answer yet, so the conversation is unchanged")
        return chat.conversation
    return asked.with_message("assistant", result.text)


def read_answer(
    beginning: AbstractContextManager[GenerationStream], show: ShowChunk
) -> GenerationResult:
    """Show an answer as it arrives; until then a spinner on stderr."""
    chunks = []
    with beginning as stream:
        with console.status("Reading"):
            first = next(stream)
        try:
            for chunk in chain([first], stream):
                show(chunk)
                chunks.append(chunk)
        finally:
            click.echo()
    return collect(chunks)


def describe(result: GenerationResult, max_new_tokens: int | None) -> str:
    """The statistics of an answer in one line, with the limit that ended it, if any."""
    stats = result.stats
    parts = [f"{stats.generated_tokens} tokens, {stats.tokens_per_second:.1f} tokens/s"]
    if stats.drafted:
        parts.append(f"{stats.acceptance_rate:.0%} of {stats.drafted} draft tokens accepted")
    if stats.draft_failures:
        parts.append(f"draft failures {stats.draft_failures}")
    parts.append(f"{stats.cached_tokens} of {stats.prompt_tokens} prompt tokens reused")
    if result.finish_reason == "cancelled":
        parts.append("cancelled")
    elif result.finish_reason == "length":
        budget = f"ended by --max-new-tokens {max_new_tokens}"
        parts.append(FULL.get(stats.length_limit, budget))
    elif stats.stop_string is not None:
        parts.append(f"ended by the {result.finish_message}")
    return " | ".join(parts)


def note(text: str) -> None:
    """Show a note, dim, on stderr."""
    console.print(text, style="dim", markup=False, soft_wrap=True)
