"""The command `chat`: a conversation with the models, in the terminal or from a pipe."""

import sys
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import click
from rich.console import Console

from ov_specdec.cli.chat.answer import (
    ShowChunk,
    answer,
    cancelled_by_interrupts,
    in_colours,
    note,
    show_text,
)
from ov_specdec.cli.chat.commands import Chat, converse
from ov_specdec.cli.chat.conversation import Conversation
from ov_specdec.cli.chat.settings import Settings
from ov_specdec.cli.declare import options_of, own_options, take
from ov_specdec.cli.messages import interrupts_call, say
from ov_specdec.cli.models import ONE_REQUEST, PIPELINE, make_pipeline
from ov_specdec.cli.options import (
    GENERATION,
    SYSTEM_OPTION,
    check_generation,
    generation_options,
    pop_generation,
)
from ov_specdec.cli.terminal import console, in_option_names, with_errors
from ov_specdec.conflicts import CHAT_OPTIONS
from ov_specdec.description import About
from ov_specdec.drafters.factory import DrafterFactory, kind_of
from ov_specdec.errors import ContextLengthError, Option, OptionError, SpecdecError
from ov_specdec.files import user_cache
from ov_specdec.loading.locate import embedded_folder, locate
from ov_specdec.options import GenerationOptions
from ov_specdec.pipeline import SpeculativePipeline
from ov_specdec.runner.store import draft_file
from ov_specdec.text.tokenizer import load_tokenizer

DEFAULTS = {"max_new_tokens": 1024}
"""No limit: Ctrl-C ends a long answer, but nothing can continue one that ended too early."""

GREETING = "/help lists commands and keys, Ctrl-D leaves"


@click.command()
@with_errors
@SYSTEM_OPTION
@own_options
@options_of(PIPELINE, *ONE_REQUEST)
@generation_options("cache_prompt", max_new_tokens=DEFAULTS["max_new_tokens"])
def chat(
    *,
    system: str | None,
    prompt_cache: Annotated[
        Path | None,
        About("Save the KV cache of the system message in this file, for later chats."),
    ] = None,
    show_draft: Annotated[bool, About("Show text from accepted draft tokens in a colour.")] = False,
    **options: Any,
) -> None:
    """Talk with a chat model in the terminal, or answer each line of stdin.

    With --seed, answers draw different numbers, but the same chat gives the same answers again.
    """
    pipeline = {**take(options, PIPELINE), "max_batch_size": 1}
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


def use_prompt_cache(
    models: SpeculativePipeline,
    file: Path,
    conversation: Conversation,
    options: Mapping[str, Any],
    note: Callable[[str], None],
) -> None:
    """Load the KV caches of the beginning of a conversation from a file, or write them to it.

    conversation: the system message at most. options: of later generations. note: called if the
    file holds another beginning. Raises `OptionError` for a file that cannot be used.
    """
    exists = file.exists()
    if exists:
        models.load_cache(file)
    # Most templates need a user's message. Its tokens differ from those of the first message of the
    # chat, and are rolled back then.
    beginning = conversation.with_message("user", "").messages
    rendering = {name: options[name] for name in CHAT_OPTIONS if name in options}
    stats = models.generate(beginning, max_new_tokens=1, **rendering).stats
    is_whole = exists and (models.draft is None or draft_file(file).exists())
    if exists and stats.cached_tokens < stats.prompt_tokens - 1:  # the last is always recomputed
        note(
            f"the prompt cache '{file}' matches {stats.cached_tokens} of the first "
            f"{stats.prompt_tokens} tokens of this chat: delete it to write a new one"
        )
    elif not is_whole:
        models.save_cache(file)


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
    options = [p for p in parameters if isinstance(p, click.Option) and p.name in GENERATION]

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
        converse(chat, piped_lines(), partial(answer, models, show, lambda begin: begin()), note)
        return
    cache = user_cache()
    history = None if cache is None else cache / "history"
    note(GREETING)
    lines = typed_lines(chat.settings.listed(), history, note)
    # A second Ctrl-C may come just after the end of the answer.
    with interrupts_call(lambda: None):
        cancellable = partial(answer, models, show, cancelled_by_interrupts)
        converse(chat, lines, cancellable, note, show_error)


def show_error(error: SpecdecError) -> None:
    """Show an error in one line; with --debug, its traceback."""
    context = click.get_current_context()
    if context.params["debug"]:
        traceback.print_exception(error)
    remedy = "; /undo or /clear makes room" if isinstance(error, ContextLengthError) else ""
    say(f"error: {in_option_names(error, context.command.params)}{remedy}")
