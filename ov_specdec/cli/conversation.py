"""A conversation with the options of its answers, and the commands that change both."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any

import click

from ov_specdec.drafters.factory import kind_of
from ov_specdec.errors import OptionError, shorten, suggest
from ov_specdec.files import expand_home, read_text
from ov_specdec.generation.text_generator import GenerationStream
from ov_specdec.options.generation import GenerationOptions
from ov_specdec.options.model import require_utf8
from ov_specdec.pipeline import SpeculativePipeline
from ov_specdec.results.chunks import GenerationResult
from ov_specdec.text.chat_template import Message, check_messages

CHAT_SALT = "chat"
"""The `cache_salt` of all generations of a chat, whose later turns thus keep the ids of answers."""


@dataclass
class Chat:
    """A conversation, and the options of its next answers.

    show: shows an answer as it comes. options: by their flags without hyphens. given: by Python
    names. num_drawn: answers since the seed was set.
    """

    models: SpeculativePipeline
    show: Callable[[GenerationStream], GenerationResult]
    options: Mapping[str, click.Option]
    given: Mapping[str, Any]
    messages: list[Message] = field(default_factory=list)
    num_drawn: int = 0

    def respond(self, line: str) -> str:
        """Answer a message or execute a command; a failed one changes nothing. Returns a note."""
        if line.startswith("//") or not line.startswith("/"):
            return self._answer(
                [*self.messages, {"role": "user", "content": line.removeprefix("/")}]
            )
        name, *rest = line.split(maxsplit=1)
        argument = "".join(rest).strip()
        if name not in CHAT_COMMANDS:
            hint = suggest(name, CHAT_COMMANDS, "/help lists all", cutoff=0.5)
            problem = f"there is no command '{name}' ({hint}); start a message with // for /"
            raise OptionError(problem)
        usage, _, run = CHAT_COMMANDS[name]
        if usage.isalpha() and not argument:
            raise OptionError(f"{name} lacks its argument: type {name} {usage}")
        return run(self, argument)

    def _answer(self, messages: list[Message]) -> str:
        options = dict(self.given)
        if options.get("cache_prompt", True):
            options["cache_salt"] = CHAT_SALT
        if options.get("seed") is not None:  # else /retry would repeat an answer
            options["choice"] = self.num_drawn
        self.num_drawn += 1
        result = self.show(self.models.stream(messages, **options))
        answer = result.message
        if result.finish_reason == "cancelled" and not (result.text or "tool_calls" in answer):
            return f"{describe(result)}\nthere is no answer yet, so the conversation is unchanged"
        self.messages = [*messages, answer]
        return describe(result) + "".join(f"\n{waits_for(call)}" for call in self._open_calls()[:1])

    def _open_calls(self) -> list[Any]:
        """The calls of the last answer without a result."""
        results = len([*takewhile(lambda each: each["role"] == "tool", reversed(self.messages))])
        answer = self.messages[: len(self.messages) - results][-1:]
        return [call for each in answer for call in each.get("tool_calls", ())][results:]

    def _tool(self, given: str) -> str:
        """Give the next call its result; once all have one, the model goes on."""
        if not (calls := self._open_calls()):
            raise OptionError("no call waits for a result: write a message")
        if given.startswith("@"):
            with _naming(given[1:], "read") as path:
                given = read_text(path)
        result = {"role": "tool", "name": calls[0]["function"]["name"], "content": given}
        messages = [*self.messages, result | {"tool_call_id": calls[0].get("id", "")}]
        if not calls[1:]:
            return self._answer(messages)
        self.messages = messages
        return waits_for(calls[1])

    def _system_message(self) -> list[Message]:
        return [each for each in self.messages[:1] if each["role"] == "system"]

    def _to_question(self) -> list[Message]:
        """All messages up to the last one of the user."""
        ends = [end for end, each in enumerate(self.messages, 1) if each["role"] == "user"]
        if not ends:
            raise OptionError("the conversation is empty: write a message first")
        return self.messages[: ends[-1]]

    def _clear(self, _: str) -> str:
        self.messages = self._system_message()
        return f"the conversation is empty{' except for the system message' * len(self.messages)}"

    def _undo(self, _: str) -> str:
        *self.messages, question = self._to_question()
        return f"removed the message {shorten(question['content'])} and its answer"

    def _retry(self, _: str) -> str:
        return self._answer(self._to_question())

    def _system(self, text: str) -> str:
        if text:
            require_utf8("the system message", text)
            new = [] if text == '""' else [{"role": "system", "content": text}]
            self.messages = [*new, *self.messages[len(self._system_message()) :]]
        shown = [f"system: {each['content']}" for each in self._system_message()]
        return "".join(shown) or "there is no system message"

    def _save(self, file: str) -> str:
        content = json.dumps(self.messages, ensure_ascii=False, indent=2)
        with _naming(file, "written") as path:
            path.write_bytes(f"{content}\n".encode())
        return f"saved {len(self.messages)} messages in '{file}'"

    def _load(self, file: str) -> str:
        with _naming(file, "loaded") as path:
            messages = json.loads(read_text(path))
            if not isinstance(messages, list):
                raise ValueError("it holds no list of messages")
            self.messages = [*check_messages(messages)]
        return f"loaded {len(messages)} messages from '{file}'"

    def _set(self, argument: str) -> str:
        """Set an option, named as on the command line or in Python; its default without a value."""
        if not argument:
            known = dict(self._complete(self.given))
            return _columns({flag: str(known[o.name]) for flag, o in self.options.items()})
        flag, _, text = argument.partition(" ")
        typed, text = flag.lstrip("-").replace("_", "-"), text.strip()
        if typed not in self.options:
            hint = suggest(typed, self.options, "/set lists all options")
            raise OptionError(f"there is no option '{flag}': {hint}")
        option, given = self.options[typed], dict(self.given)
        name = str(option.name)
        before = given.pop(name, None)
        if text:
            context = click.Context(click.Command("/set"))
            try:
                given[name] = option.process_value(context, (text,) if option.multiple else text)
            except click.BadParameter as error:
                raise OptionError(error.format_message()) from error
            if option.multiple and before:  # a repeatable option gets another value
                value = given[name]
                given[name] = before | value if isinstance(value, dict) else before + value
        self._complete(given)
        self.given = given
        if name == "seed":
            self.num_drawn = 0
        return "" if text else f"{typed} has its default"

    def _complete(self, given: Mapping[str, Any]) -> GenerationOptions:
        """Given options with defaults for others; refuses invalid ones."""
        options = self.models.complete_options(**given)
        kind_of(self.models.drafter).check(options)
        return options


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


def waits_for(call: Mapping[str, Any]) -> str:
    """Asks for the result of a call."""
    return f"{call['function']['name']} waits for its result: /tool TEXT or /tool @FILE"


@contextmanager
def _naming(file: str, done: str) -> Iterator[Path]:
    """The path of a file; names it if it cannot be used."""
    path = expand_home(file)
    try:
        yield path
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or error
        raise OptionError(f"'{path}' cannot be {done} ({reason}): give another file") from error


def describe_commands(*_: object) -> str:
    """What /help shows."""
    rows = {f"{name} {usage}": text for name, (usage, text, _) in CHAT_COMMANDS.items()}
    return f"{_columns(rows)}\n\n{CHAT_KEYS}"


def _columns(rows: Mapping[str, str]) -> str:
    width = max(map(len, rows))
    return "\n".join(f"{key:<{width}}  {text}" for key, text in rows.items())


LEAVING = ("exit", "quit", "/exit", "/bye", "/quit")

CHAT_COMMANDS: Mapping[str, tuple[str, str, Callable[[Chat, str], str]]] = {
    "/help": ("", "List the commands and keys.", describe_commands),
    "/clear": ("", "Remove all messages but the system message.", Chat._clear),
    "/undo": ("", "Remove the last message and its answer.", Chat._undo),
    "/retry": ("", "Answer the last message again.", Chat._retry),
    "/system": ("[TEXT]", 'Show or replace the system message; "" removes it.', Chat._system),
    "/tool": ("RESULT", "Give the result of a call: a text, or @FILE.", Chat._tool),
    "/set": ("[OPTION [VALUE]]", "Set an option, or its default; or list all.", Chat._set),
    "/save": ("FILE", "Write the messages to a JSON file.", Chat._save),
    "/load": ("FILE", "Continue with the messages of such a file.", Chat._load),
    "/exit": ("", "Leave; so do exit, quit, /bye and Ctrl-D.", lambda *_: ""),
}
"""The argument of each command, its help, and its function; `LEAVING` ends a chat before."""

CHAT_KEYS = """\
Enter sends, Alt-Enter starts a new line, Tab completes, Up recalls earlier lines.
Ctrl-C ends an answer, Ctrl-D the chat. For a message that begins with /, type //."""
