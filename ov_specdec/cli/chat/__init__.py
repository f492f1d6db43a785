"""`ov-specdec chat`: a conversation with the models, in the terminal or from a pipe."""

import sys
from collections.abc import Iterable
from functools import partial
from typing import Any

import click

from ov_specdec.cli.chat.conversation import LEAVING, Chat
from ov_specdec.cli.chat.terminal import note, piped_lines, show_answer, typed_ahead, typed_lines
from ov_specdec.cli.declare import options_of, own_options, take
from ov_specdec.cli.models import (
    MODELS,
    ONE_REQUEST,
    PIPELINE,
    make_pipeline,
    model_name,
    models_first,
    typed,
)
from ov_specdec.cli.options import GENERATION, Shared, check_generation, generation_options
from ov_specdec.cli.terminal import flag_of, show_error, with_errors
from ov_specdec.errors import ContextLengthError, Option, OptionError, SpecdecError
from ov_specdec.models.locate import embedded_folder, locate
from ov_specdec.options.checks import require_utf8
from ov_specdec.options.model import option
from ov_specdec.text.chat import Message
from ov_specdec.text.tokenizer import load_tokenizer


@click.command()
@with_errors
@models_first(*MODELS)
@options_of(Shared.model_fields, "system")
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
    pipeline, given = take(options, PIPELINE), typed(take(options, GENERATION))
    check_generation(given, pipeline)
    main, draft = pipeline["main"], pipeline["draft"]
    folder = embedded_folder("main") if main is None else locate(main)
    name = "the embedded model" if main is None else model_name(main)
    if load_tokenizer(folder).chat_template is None:  # known before the model is compiled
        raise OptionError(
            name if main is None else Option("main", main),
            " has no chat template: give a chat model as main, or continue a text with ov-specdec "
            "generate",
        )
    require_utf8("the system message", system or "")
    messages: list[Message] = [{"role": "system", "content": system}] if system else []
    parameters = click.get_current_context().command.params
    known = [p for p in parameters if isinstance(p, click.Option) and p.name in GENERATION]
    settable = {flag_of(each).removeprefix("--"): each for each in known}
    is_typed = sys.stdin is not None and sys.stdin.isatty()
    with typed_ahead(), make_pipeline(pipeline) as models:
        show = partial(show_answer, is_typed=is_typed, show_draft=show_draft)
        talk = Chat(models, show, settable, given, messages)
        if is_typed:
            source = models.drafter if draft is None else f"{models.drafter} {model_name(draft)}"
            note(f"{name}, drafter {source}\n/help lists commands and keys, Ctrl-D leaves")
        converse(talk, typed_lines(talk.options) if is_typed else piped_lines(), goes_on=is_typed)


def converse(chat: Chat, lines: Iterable[str], *, goes_on: bool) -> None:
    """Execute lines until one leaves the chat, or they end. goes_on: after an error, shown then."""
    for line in filter(str.strip, lines):
        if line.strip() in LEAVING:
            return
        try:
            if reply := chat.respond(line):
                note(reply)
        except SpecdecError as error:
            if not goes_on:
                raise
            is_full = isinstance(error, ContextLengthError)
            show_error(error, "; /undo or /clear makes room" if is_full else "")
