"""One answer of the model: streamed to stdout, ended by Ctrl-C, and summed up in a line."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import chain

import click
from rich.console import Console
from rich.segment import Segment, Segments
from rich.style import Style

from ov_specdec.chunks import Chunk, GenerationResult, collect
from ov_specdec.cli.interrupts import interrupts_call
from ov_specdec.cli.terminal import console
from ov_specdec.generation import GenerationStream
from ov_specdec.palette import GREEN

ShowChunk = Callable[[Chunk], None]
Begin = Callable[[], GenerationStream]
Start = Callable[[Begin], AbstractContextManager[GenerationStream]]

FULL = {
    "max_model_len": "the model's context is full: /undo or /clear makes room",
    "kv_cache_size": "the KV cache is full: /undo or /clear makes room, as a larger "
    "--kv-cache-size does",
}
"""What to say where an answer had no more room, by what has none."""


def show_text(chunk: Chunk) -> None:
    """Print a chunk's text."""
    click.echo(chunk.text, nl=False)


def in_colours(output: Console) -> ShowChunk:
    """Prints chunks, accepted draft tokens in a colour.

    As text where there are no colours, as in a file; rich decides that: NO_COLOR counts.
    """
    accepted = Style(color=GREEN)

    def show(chunk: Chunk) -> None:
        # In segments: rich would wrap a text, and replace its tabs.
        segment = Segment(chunk.text, accepted if chunk.from_draft else None)
        output.print(Segments([segment]), soft_wrap=True)
        output.file.flush()

    return show


@contextmanager
def cancelled_by_interrupts(begin: Begin) -> Iterator[GenerationStream]:
    """The stream that `begin` returns; Ctrl-C cancels it, and has no other effect meanwhile."""
    streams: list[GenerationStream] = []
    interrupted = False

    def cancel() -> None:
        nonlocal interrupted
        interrupted = True
        for stream in streams:
            stream.cancel()

    with interrupts_call(cancel), begin() as stream:
        streams.append(stream)
        if interrupted:  # while it was begun
            stream.cancel()
        yield stream


def read_answer(
    beginning: AbstractContextManager[GenerationStream], show: ShowChunk
) -> GenerationResult:
    """Show an answer as it comes; until then there is a spinner on stderr."""
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
    """The statistics of an answer in one line, and what ended it if not the model."""
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
