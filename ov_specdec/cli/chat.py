"""`ov-specdec chat`: a conversation with the models, in the terminal or from a pipe."""

import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Any

import click
from prompt_toolkit import PromptSession
from prompt_toolkit.completion import Completer, NestedCompleter, PathCompleter, WordCompleter
from prompt_toolkit.completion import merge_completers as merge
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.output import create_output
from prompt_toolkit.shortcuts import CompleteStyle

from ov_specdec.cli.conversation import CHAT_COMMANDS, LEAVING, Chat
from ov_specdec.cli.declare import command, options_of, take, typed
from ov_specdec.cli.options import (
    FOR_SEVERAL,
    GENERATION,
    LOGPROBS,
    PIPELINE,
    Shared,
    check_generation,
    make_pipeline,
    model_name,
)
from ov_specdec.cli.terminal import Transcript, by_flag, console, show_error
from ov_specdec.errors import OptionError, SpecdecError
from ov_specdec.files import ENCODING, user_cache
from ov_specdec.generation.text_generator import GenerationStream
from ov_specdec.models.locate import locate
from ov_specdec.options.model import option, require_utf8
from ov_specdec.results.chunks import GenerationResult
from ov_specdec.results.origins import LINES
from ov_specdec.text.chat_template import Message
from ov_specdec.text.tokenizer import load_tokenizer

ACCEPTED = tuple(bytes.fromhex(LINES["draft"][0][1:]))


@command(
    "[MAIN] [DRAFT]",
    options_of(Shared.model_fields, "system"),
    options_of(PIPELINE, without=FOR_SEVERAL),
    options_of(GENERATION, without=("apply_chat_template", *LOGPROBS)),
)
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
    name = "the embedded model" if main is None else model_name(main)
    if load_tokenizer(locate(main)).chat_template is None:  # known before the model is compiled
        problem = f"{name if main is None else '{main}'} has no chat template"
        remedy = "give a chat model as main, or continue a text with ov-specdec generate"
        raise OptionError(f"{problem}: {remedy}", main=main)
    require_utf8("the system message", system or "")
    messages: list[Message] = [{"role": "system", "content": system}] if system else []
    known = by_flag(click.get_current_context().command)
    settable = {flag: each for flag, each in known.items() if each.name in GENERATION}
    is_typed = sys.stdin is not None and sys.stdin.isatty()
    with make_pipeline(pipeline) as models:
        show = partial(show_answer, show_draft=show_draft, is_typed=is_typed)
        talk = Chat(models, show, settable, given, messages)
        if is_typed:
            source = models.drafter if draft is None else f"{models.drafter} {model_name(draft)}"
            note(f"{name}, drafter {source}\n/help lists commands and keys, Ctrl-D leaves")
        lines = typed_lines(talk.options) if is_typed else piped_lines()
        converse(talk, lines, goes_on=is_typed)


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
            show_error(error)


def show_answer(
    stream: GenerationStream, *, show_draft: bool, is_typed: bool = False
) -> GenerationResult:
    """Show an answer as it arrives; until then a spinner on stderr.

    show_draft: in a colour. is_typed: Ctrl-C ends the answer, and not the chat.
    """
    shown = Transcript()
    if is_typed:  # until the next answer, since a second Ctrl-C may come just after the end
        signal.signal(signal.SIGINT, lambda *_: stream.cancel())
    with stream:
        with console.status("Reading"):
            first = next(stream)
        try:
            for chunk in chain([first], stream):
                is_marked = show_draft and chunk.from_draft and not console.no_color
                shown.show(chunk, ACCEPTED if is_marked else None)
        finally:
            click.echo()
    return shown.output.result


def note(text: str) -> None:
    """Show a note, dim, on stderr."""
    console.print(text, style="dim", markup=False, soft_wrap=not console.is_terminal)


def typed_lines(options: Iterable[str]) -> Iterator[str]:
    """Typed messages until Ctrl-D. options: names to complete."""
    keys = KeyBindings()
    keys.add("escape", "enter")(lambda event: event.current_buffer.insert_text("\n"))
    editor: PromptSession[str] = PromptSession(
        "> ",
        prompt_continuation="  ",
        key_bindings=keys,
        completer=command_completer(options),
        # Completion by Tab, as in a shell: a menu would need room below the line.
        complete_style=CompleteStyle.READLINE_LIKE,
        complete_while_typing=False,
        history=_history(),
        # If only stdout is redirected, the prompt goes to stderr.
        output=create_output(always_prefer_tty=True),
    )
    with suppress(EOFError):
        while True:
            with suppress(KeyboardInterrupt):  # clears a line
                yield editor.prompt()
                continue
            if not editor.default_buffer.text:
                note("Ctrl-D or /exit leaves the chat")


def command_completer(options: Iterable[str]) -> Completer:
    """Completes commands and their arguments: options or files."""
    names, files = WordCompleter(sorted(options), WORD=True), PathCompleter(expanduser=True)
    arguments = NestedCompleter({"/set": names, "/save": files, "/load": files})
    return merge([WordCompleter(list(CHAT_COMMANDS), sentence=True), arguments], deduplicate=True)


def _history() -> History:
    """Earlier lines in a file that only its owner can read, or in memory if there can be none."""
    if folder := user_cache():
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "history").touch(mode=0o600)
            return FileHistory(folder / "history")
    return InMemoryHistory()


def piped_lines() -> Iterator[str]:
    """The lines of stdin as they arrive; `OptionError` for one that is not UTF-8."""
    if sys.stdin is None:  # it is closed
        return
    try:
        with click.open_file("-", encoding=ENCODING) as lines:
            for line in lines:
                yield line.rstrip("\n")
    except UnicodeDecodeError as error:
        raise OptionError(f"stdin cannot be read as text: {error}; give UTF-8") from error
