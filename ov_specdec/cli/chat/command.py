"""The command `chat`: a conversation with the models, in the terminal or from a pipe."""

import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from ov_specdec.cli.chat.answer import (
    ShowChunk,
    Start,
    cancelled_by_interrupts,
    describe,
    in_colours,
    read_answer,
    show_text,
)
from ov_specdec.cli.chat.commands import Chat
from ov_specdec.cli.chat.conversation import Conversation
from ov_specdec.cli.chat.loop import Answer, converse
from ov_specdec.cli.chat.prompt_cache import use_prompt_cache
from ov_specdec.cli.chat.settings import Settings
from ov_specdec.cli.generation_options import GENERATION_OPTIONS, length_option, option_of
from ov_specdec.cli.interrupts import interrupts_call
from ov_specdec.cli.loading import make_pipeline
from ov_specdec.cli.messages import say
from ov_specdec.cli.model_options import (
    PIPELINE_OPTIONS,
    STATIC_SHAPES_OPTION,
    pop_pipeline,
    with_options,
)
from ov_specdec.cli.option_names import in_option_names
from ov_specdec.cli.options import GENERATION_NAMES, SYSTEM_OPTION, check_generation, pop_generation
from ov_specdec.cli.terminal import console, with_errors
from ov_specdec.drafters.factory import DrafterFactory, kind_of
from ov_specdec.errors import ContextLengthError, Option, OptionError, SpecdecError
from ov_specdec.files import user_cache
from ov_specdec.generation import GenerationStream
from ov_specdec.loading.locate import embedded_folder, locate
from ov_specdec.options import GenerationOptions
from ov_specdec.pipeline import SpeculativePipeline
from ov_specdec.text.tokenizer import load_tokenizer

DEFAULTS = {"max_new_tokens": 1024}
"""No limit: Ctrl-C ends a long answer, but nothing can continue one that ended too early."""

GREETING = "/help lists commands and keys, Ctrl-D leaves"


@click.command()
@with_errors
@SYSTEM_OPTION
@click.option(
    "--prompt-cache",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Save the KV cache of the system message in this file, for later chats.",
)
@click.option(
    "--show-draft", is_flag=True, help="Show text from accepted draft tokens in a colour."
)
@with_options(
    (
        *PIPELINE_OPTIONS,
        STATIC_SHAPES_OPTION,
        length_option(DEFAULTS["max_new_tokens"]),
        *GENERATION_OPTIONS,
        option_of("cache_prompt"),
    )
)
def chat(system: str | None, prompt_cache: Path | None, show_draft: bool, **options: Any) -> None:
    """Talk with a chat model in the terminal, or answer each line of stdin.

    With --seed, answers draw different numbers, but the same chat gives the same answers again.
    """
    pipeline = {**pop_pipeline(options), "max_batch_size": 1}
    generation = {**DEFAULTS, **pop_generation(options)}
    check_generation(generation, pipeline)
    if prompt_cache is not None and not generation.get("cache_prompt", True):
        raise OptionError(
            Option("prompt_cache", str(prompt_cache)),
            " has no effect with ",
            Option("cache_prompt", False),
            ": leave out one of the two",
        )
    require_chat_template(pipeline["main"])
    conversation = Conversation().with_system(system or "")
    show = in_colours(Console(highlight=False)) if show_draft else show_text
    with make_pipeline(pipeline) as models:
        if prompt_cache is not None:
            with console.status("Reading"):
                use_prompt_cache(models, prompt_cache, conversation, generation, note)
        talk(Chat(conversation, settings(generation, models)), models, show)


def require_chat_template(main: str | None) -> None:
    """Refuse a model without a chat template before it is compiled."""
    folder = embedded_folder("main") if main is None else locate(main)
    if load_tokenizer(folder).chat_template is None:
        raise OptionError(
            "the embedded model" if main is None else Option("main", main),
            " has no chat template: give a chat model as main, or continue a text with ov-specdec "
            "generate",
        )


def settings(generation: Mapping[str, Any], models: SpeculativePipeline) -> Settings:
    """The generation options that a chat can set and list."""
    parameters = click.get_current_context().command.params
    options = {
        str(p.name): p
        for p in parameters
        if isinstance(p, click.Option) and p.name in GENERATION_NAMES
    }

    def complete(given: Mapping[str, Any]) -> GenerationOptions:
        checked = models.complete_options(**given)
        DrafterFactory(kind_of(models.drafter)).check(checked)
        return checked

    return Settings(options, generation, complete, DEFAULTS)


def talk(chat: Chat, models: SpeculativePipeline, show: ShowChunk) -> None:
    """Talk until the user leaves or stdin ends; an error ends only a chat from a pipe."""
    # Imported here: no other command needs prompt_toolkit.
    from ov_specdec.cli.chat.lines import piped_lines, typed_lines

    if sys.stdin is None or not sys.stdin.isatty():
        converse(chat, piped_lines(), answers(models, show, lambda begin: begin()), note, end)
        return
    cache = user_cache()
    history = None if cache is None else cache / "history"
    note(GREETING)
    lines = typed_lines(chat.settings.listed(), history, note)
    # A second Ctrl-C may come just after the end of the answer.
    with interrupts_call(lambda: None):
        converse(chat, lines, answers(models, show, cancelled_by_interrupts), note, show_error)


def answers(models: SpeculativePipeline, show: ShowChunk, start: Start) -> Answer:
    """Generates and shows an answer, and a line of statistics.

    start: makes a context around the start of an answer, which handles Ctrl-C.
    """

    def answer(chat: Chat, asked: Conversation) -> Conversation:
        options = chat.next_options()

        def begin() -> GenerationStream:
            return models.stream(asked.messages, **options)

        result = read_answer(start(begin), show)
        max_new_tokens = chat.settings.complete(chat.settings.given).max_new_tokens
        note(describe(result, max_new_tokens))
        if result.finish_reason == "cancelled" and not result.text:
            note("there is no answer yet, so the conversation is unchanged")
            return chat.conversation
        return asked.with_message("assistant", result.text)

    return answer


def note(text: str) -> None:
    """Show a note, dim, on stderr."""
    console.print(text, style="dim", markup=False, soft_wrap=True)


def show_error(error: SpecdecError) -> None:
    """Show an error in one line; with --debug, its traceback."""
    context = click.get_current_context()
    if context.params["debug"]:
        traceback.print_exception(error)
    remedy = "; /undo or /clear makes room" if isinstance(error, ContextLengthError) else ""
    say(f"error: {in_option_names(error, context.command.params)}{remedy}")


def end(error: SpecdecError) -> None:
    """Raise an error."""
    raise error
