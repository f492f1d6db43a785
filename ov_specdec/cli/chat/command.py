"""The command `chat`: a conversation with the models, in the terminal or from a pipe."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from itertools import chain
from typing import Any

import click
from rich.console import Console

from ov_specdec.cli.chat.conversation import Chat, converse
from ov_specdec.cli.chat.screen import Screen
from ov_specdec.cli.declare import options_of, own_options, take
from ov_specdec.cli.messages import interrupts_call
from ov_specdec.cli.models import (
    MODELS,
    ONE_REQUEST,
    PIPELINE,
    make_pipeline,
    model_name,
    models_first,
)
from ov_specdec.cli.options import (
    GENERATION,
    SYSTEM_OPTION,
    check_generation,
    generation_options,
    pop_generation,
)
from ov_specdec.cli.terminal import console, show_error, with_errors
from ov_specdec.drafters.factory import kind_of
from ov_specdec.errors import ContextLengthError, Option, OptionError, SpecdecError
from ov_specdec.generation.text_generator import GenerationStream
from ov_specdec.models.locate import embedded_folder, locate
from ov_specdec.options.checks import require_utf8
from ov_specdec.options.generation import GenerationOptions
from ov_specdec.options.model import option
from ov_specdec.records.files import user_cache
from ov_specdec.results.chunks import GenerationResult, ResultBuilder
from ov_specdec.text.chat import Message
from ov_specdec.text.tokenizer import load_tokenizer

KEYS = "/help lists commands and keys, Ctrl-D leaves"

Begin = Callable[[], GenerationStream]


@click.command()
@with_errors
@models_first(*MODELS)
@SYSTEM_OPTION
@own_options
@options_of(PIPELINE, *ONE_REQUEST)
@generation_options("cache_prompt")
def chat(
    *,
    system: str | None,
    show_draft: bool = option(False, "Show text from accepted draft tokens in a colour."),
    **options: Any,
) -> None:
    """Talk with a chat model in the terminal, or answer each line of stdin.

    With --seed, answers draw different numbers, but the same chat gives the same answers again.
    """
    pipeline = {**take(options, PIPELINE), "max_batch_size": 1}
    generation = pop_generation(options)
    check_generation(generation, pipeline)
    require_chat_template(pipeline["main"])
    messages: list[Message] = []
    if system:
        require_utf8("the system message", system)
        messages = [{"role": "system", "content": system}]
    is_typed = sys.stdin is not None and sys.stdin.isatty()
    parameters = click.get_current_context().command.params
    known = [p for p in parameters if isinstance(p, click.Option) and p.name in GENERATION]
    # Imported here: no other command needs prompt_toolkit.
    from ov_specdec.cli.chat.lines import piped_lines, typed_ahead, typed_lines

    with typed_ahead(), make_pipeline(pipeline) as models:

        def complete(given: Mapping[str, Any]) -> GenerationOptions:
            checked = models.complete_options(**given)
            kind_of(models.drafter).check(checked)
            return checked

        def answer(messages: Sequence[Message], options: Mapping[str, Any]) -> str | None:
            begin = partial(models.stream, messages, **options)
            start = cancelled_by_interrupts(begin) if is_typed else begin()
            result = show_answer(start, Screen(Console(highlight=False), show_draft=show_draft))
            note(describe(result, complete(talk.given).max_new_tokens))
            return result.text if result.text or result.finish_reason != "cancelled" else None

        talk = Chat(answer, known, complete, generation, messages)
        if not is_typed:  # an error ends the chat
            converse(talk, piped_lines(), note)
            return
        note(greeting(pipeline, models.drafter))
        cache = user_cache()
        lines = typed_lines(talk.flags(), cache and cache / "history", note)
        # A second Ctrl-C may come just after the end of the answer.
        with interrupts_call(lambda: None):
            converse(talk, lines, note, show_in_chat)


def require_chat_template(main: str | None) -> None:
    """Refuse a model without a chat template before it is compiled."""
    folder = embedded_folder("main") if main is None else locate(main)
    if load_tokenizer(folder).chat_template is None:
        raise OptionError(
            "the embedded model" if main is None else Option("main", main),
            " has no chat template: give a chat model as main, or continue a text with ov-specdec "
            "generate",
        )


def greeting(arguments: Mapping[str, Any], drafter: str) -> str:
    """The models and the drafter of a chat, and how to go on."""
    names = {role: model_name(arguments[role]) for role in MODELS if arguments[role] is not None}
    source = f"{drafter} {names['draft']}" if "draft" in names else drafter
    return f"{names.get('main', 'the embedded model')}, drafter {source}\n{KEYS}"


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


def show_answer(
    start: AbstractContextManager[GenerationStream], screen: Screen
) -> GenerationResult:
    """Show an answer as it arrives; until then a spinner on stderr."""
    answer = ResultBuilder()
    with start as stream:
        with console.status("Reading"):
            first = next(stream)
        try:
            for chunk in chain([first], stream):
                screen.show(chunk)
                answer.add(chunk)
        finally:
            click.echo()
    return answer.result


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
        parts.append(result.ending.remedy_in_chat or budget)
    elif stats.stop_string is not None:
        parts.append(f"ended by the {result.finish_message}")
    return " | ".join(parts)


def note(text: str) -> None:
    """Show a note, dim, on stderr."""
    console.print(text, style="dim", markup=False, soft_wrap=not console.is_terminal)


def show_in_chat(error: SpecdecError) -> None:
    """Show an error, after which the chat goes on."""
    is_full = isinstance(error, ContextLengthError)
    show_error(error, "; /undo or /clear makes room" if is_full else "")
