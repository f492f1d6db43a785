"""A chat without a terminal and without a model: its conversation, commands and settings."""

import io
import json
import math
import signal
from contextlib import contextmanager
from types import SimpleNamespace

import click
import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from rich.console import Console

from ov_specdec.chunks import Chunk, GenerationResult
from ov_specdec.cli.app import app
from ov_specdec.cli.chat.answer import cancelled_by_interrupts, describe, in_colours
from ov_specdec.cli.chat.command import use_prompt_cache
from ov_specdec.cli.chat.commands import COMMANDS, Chat, converse, respond
from ov_specdec.cli.chat.conversation import Conversation
from ov_specdec.cli.chat.lines import CommandCompleter
from ov_specdec.cli.chat.settings import Settings
from ov_specdec.cli.options import GENERATION
from ov_specdec.errors import OptionError
from ov_specdec.options import GenerationOptions
from ov_specdec.stats import GenerationStats, RoundStats

SYSTEM = {"role": "system", "content": "Be brief."}
QUESTION = {"role": "user", "content": "Hello"}
ANSWER = {"role": "assistant", "content": "Hi"}
AGAIN = {"role": "user", "content": "Why?"}


def options():
    parameters = app.get_command(click.Context(app), "chat").params
    return [p for p in parameters if p.name in GENERATION]


@pytest.fixture
def chat():
    settings = Settings(options(), {}, GenerationOptions.from_kwargs, defaults={})
    return Chat(Conversation((SYSTEM, QUESTION, ANSWER)), settings)


def error(chat, line):
    """The message of a line that is refused and changes nothing."""
    before = (chat.conversation, chat.settings)
    with pytest.raises(OptionError) as caught:
        respond(chat, line)
    assert (chat.conversation, chat.settings) == before
    return str(caught.value)


def test_a_line_is_a_message_to_be_answered(chat):
    for line, text in (("Why?", "Why?"), ("//etc/hosts?", "/etc/hosts?"), ("a\n/b", "a\n/b")):
        reply = respond(chat, line)
        expected = (SYSTEM, QUESTION, ANSWER, {"role": "user", "content": text})
        assert reply.asked.messages == expected
    assert chat.conversation.messages == (SYSTEM, QUESTION, ANSWER)
    assert respond(chat, " \n ").asked is None


def test_clear_leaves_the_system_message(chat):
    assert "except for the system message" in respond(chat, "/clear").note
    assert chat.conversation.messages == (SYSTEM,)
    chat.conversation = Conversation((QUESTION, ANSWER))
    assert respond(chat, "/clear").note == "the conversation is empty"
    assert chat.conversation.messages == ()


def test_undo_removes_the_last_exchange(chat):
    chat.conversation = Conversation((*chat.conversation.messages, AGAIN, ANSWER))
    assert "'Why?'" in respond(chat, "/undo").note
    assert chat.conversation.messages == (SYSTEM, QUESTION, ANSWER)
    respond(chat, "/undo")
    assert chat.conversation.messages == (SYSTEM,)
    assert error(chat, "/undo") == "the conversation is empty: write a message first"


def test_retry_asks_the_last_message_again(chat):
    assert respond(chat, "/retry").asked.messages == (SYSTEM, QUESTION)
    assert chat.conversation.messages == (SYSTEM, QUESTION, ANSWER)
    chat.conversation = Conversation()
    assert "is empty" in error(chat, "/retry")


def test_the_system_message_is_shown_replaced_and_removed(chat):
    assert respond(chat, "/system").note == "system: Be brief."
    respond(chat, "/system  Be  kind.")
    assert chat.conversation.messages[0] == {"role": "system", "content": "Be  kind."}
    assert respond(chat, '/system ""').note == "there is no system message"
    assert chat.conversation.messages == (QUESTION, ANSWER)
    respond(chat, "/system Be brief.")
    assert chat.conversation.messages == (SYSTEM, QUESTION, ANSWER)


def test_a_saved_conversation_is_loaded_again(chat, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    chat.conversation = chat.conversation.with_message("user", "größer\n🙂")
    messages = chat.conversation.messages
    assert respond(chat, "/save ~/a b.json").note == "saved 4 messages in '~/a b.json'"
    saved = (tmp_path / "a b.json").read_text(encoding="utf-8")
    assert json.loads(saved) == list(messages)
    assert "größer" in saved
    respond(chat, "/clear")
    assert respond(chat, "/load ~/a b.json").note == "loaded 4 messages from '~/a b.json'"
    assert chat.conversation.messages == messages


BAD_FILES = {
    "missing": (None, "cannot be read (No such file or directory): give another file"),
    "no JSON": (b"Hello", "holds no JSON (Expecting value"),
    "no text": (b"\xff\xfe", "holds no JSON ('utf-8' codec can't decode"),
    "deep": (b"[" * 100_000, "holds no JSON ("),
    "no list": (b"{}", "holds no list of messages"),
    "a number": (b"[1]", "messages[0] is 1"),
    "no role": (b'[{"content": "x"}]', "messages[0] has no role"),
    "no content": (b'[{"role": "user"}]', "messages[0] has no content"),
    "a user's call": (b'[{"role": "user", "tool_calls": [1]}]', "messages[0] has no content"),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_a_bad_file_is_refused_and_nothing_changes(case, chat, tmp_path):
    content, complaint = BAD_FILES[case]
    if content is not None:
        (tmp_path / "x").write_bytes(content)
    message = error(chat, f"/load {tmp_path / 'x'}")
    assert message.startswith(f"'{tmp_path / 'x'}' ")
    assert complaint in message


def test_a_file_that_cannot_be_written_is_refused(chat, tmp_path):
    assert "cannot be written (Is a directory)" in error(chat, f"/save {tmp_path}")
    nowhere = "'~nobody-at-all/x' cannot be written (No such file or directory): give another file"
    assert nowhere in error(chat, "/save ~nobody-at-all/x")
    assert "cannot be written (embedded null byte)" in error(chat, "/save a\0b")


def test_messages_that_cannot_be_written_leave_a_file_as_it_was(chat, tmp_path):
    (tmp_path / "x").write_text("before")
    chat.conversation = Conversation(({**QUESTION, "name": "\ud800"},))
    assert "cannot be written ('utf-8' codec" in error(chat, f"/save {tmp_path / 'x'}")
    assert (tmp_path / "x").read_text() == "before"


def test_commands_that_cannot_be_followed_say_what_is_wrong(chat):
    assert "no command '/cler' (did you mean /clear?); start" in error(chat, "/cler")
    assert "no command '/xyz' (/help lists all)" in error(chat, "/xyz")
    assert error(chat, "/undo 2") == "/undo takes no argument: leave '2' out"
    assert error(chat, "/load ") == "/load lacks its argument: type /load FILE"
    assert error(chat, "/set top-k").startswith("/set top-k lacks its value")


def test_help_names_every_command_and_option_lists_every_option(chat):
    assert all(f"{name} " in respond(chat, "/help").note for name in COMMANDS)
    listed = [line.split()[0] for line in respond(chat, "/set").note.splitlines()]
    assert "max-new-tokens" in listed
    assert len(listed) == len(options())


@pytest.mark.parametrize("line", ["/exit", "exit", "quit ", "/bye"])
def test_what_leaves_other_programs_leaves_a_chat(chat, line):
    assert respond(chat, line).leaves


def test_a_message_may_begin_with_quit(chat):
    assert not respond(chat, "quit smoking").leaves


SET = {
    "top-k 40": ("top_k", 40),
    "--temperature 0.7": ("temperature", 0.7),
    "max_new_tokens 3": ("max_new_tokens", 3),
    "ignore-eos true": ("ignore_eos", True),
    "do-sample off": ("do_sample", False),
    r"stop \n\n": ("stop_strings", ("\n\n",)),
    "stop the end": ("stop_strings", ("the end",)),
    "bad-words-ids 3,4": ("bad_words_ids", ((3, 4),)),
    "suppress-tokens 3,4": ("suppress_tokens", (3, 4)),
    "num-assistant-tokens 4": ("num_assistant_tokens", 4),
    "stop-token-ids 3": ("stop_token_ids", (3,)),
    "logit-bias 3=-inf": ("logit_bias", {3: -math.inf}),
}


@pytest.mark.parametrize("line", SET)
def test_set_reads_values_as_the_command_line_does(line, chat):
    key, value = SET[line]
    respond(chat, f"/set {line}")
    assert chat.settings.given == {key: value}


def test_options_that_may_be_given_several_times_are_collected(chat):
    for value in ("a", "b"):
        respond(chat, f"/set stop {value}")
    assert chat.settings.given["stop_strings"] == ("a", "b")
    assert "stop                            'a', 'b'\n" in respond(chat, "/set").note
    respond(chat, "/unset stop")
    for bias in ("3=1", "4=2", "3=3"):
        respond(chat, f"/set logit-bias {bias}")
    assert chat.settings.given == {"logit_bias": {3: 3.0, 4: 2.0}}


BAD_SETTINGS = {
    "top-k many": "Invalid value for '--top-k': 'many' is not a valid integer",
    "top-p 2": "top_p=2.0 must be a number from 0.0 to 1.0",
    "ignore-eos perhaps": "'perhaps' is not a valid boolean",
    r"stop \d": r"\d is not an escape",
    "tempreature 1": "there is no option 'tempreature': did you mean temperature?",
    "xyz 1": "there is no option 'xyz': /set lists all options",
    "main x": "there is no option 'main'",
    "num-assistant-tokens-schedule fast": "'fast' is not one of",
}


@pytest.mark.parametrize("line", BAD_SETTINGS)
def test_bad_settings_are_refused(line, chat):
    assert BAD_SETTINGS[line] in error(chat, f"/set {line}")


def test_settings_that_contradict_each_other_are_refused(chat):
    respond(chat, "/set top-k 4")
    assert "has no effect with do_sample=False" in error(chat, "/set do-sample false")
    respond(chat, "/unset top-k")
    respond(chat, "/set do-sample false")
    assert "there is no option 'x'" in error(chat, "/unset x")


def test_unset_brings_the_default_back():
    parameters, default = options(), {"max_new_tokens": 1024}
    settings = Settings(parameters, default, GenerationOptions.from_kwargs, default)
    changed = settings.with_value("max-new-tokens", "4").with_value("top-k", "3")
    assert changed.given == {"max_new_tokens": 4, "top_k": 3}
    assert changed.without_value("max-new-tokens").given == {"max_new_tokens": 1024, "top_k": 3}
    assert changed.without_value("top-k").given == {"max_new_tokens": 4}
    assert {p.name: p.default for p in parameters}["max_new_tokens"] == 1024


def completions(text):
    completer = CommandCompleter(["top-k", "top-p", "seed"])
    return [c.text for c in completer.get_completions(Document(text), CompleteEvent())]


def test_commands_options_and_files_are_completed(tmp_path):
    (tmp_path / "talk.json").touch()
    assert completions("/s") == ["/system", "/set", "/save"]
    assert completions("/set top") == ["top-k", "top-p"]
    assert completions("/unset s") == ["seed"]
    assert completions(f"/load {tmp_path}/ta") == ["lk.json"]
    for text in ("Tell me", "s", "/undo ", "a\n/s", "/xyz t"):
        assert completions(text) == []


def test_an_error_in_an_answer_takes_the_message_back(chat):
    before, errors = chat.conversation, []

    def answer(chat, asked):
        if asked.messages[-1]["content"] == "bad":
            raise OptionError("the model's context is full")
        return asked.with_message("assistant", "Hi")

    lines = ["/nothing", "bad", "good", "/exit", "never"]
    converse(chat, lines, answer, note=print, on_error=errors.append)
    assert [str(error).split(" ")[0] for error in errors] == ["there", "the"]
    good = {"role": "user", "content": "good"}
    assert chat.conversation.messages == (*before.messages, good, ANSWER)


def coloured(**settings):
    output = Console(file=io.StringIO(), force_terminal=True, color_system="truecolor", **settings)
    show = in_colours(output)
    show(Chunk("a\t[b]\n" + 90 * "c", [1], "plain"))
    show(Chunk("d\te", [2], "draft"))
    return output.file.getvalue()


def test_accepted_draft_tokens_have_a_colour_and_the_text_stays_as_it_is():
    own = "a\t[b]\n" + 90 * "c"
    assert coloured() == f"{own}\x1b[38;2;0;158;115md\te\x1b[0m"
    assert coloured(no_color=True) == f"{own}d\te"


def described(
    finish_reason, num_generated, num_drafted=0, limit="max_new_tokens", stop=None, **more
):
    stats = GenerationStats(20, length_limit=limit, stop_string=stop)
    counts = num_drafted, num_drafted, num_generated
    round_ = RoundStats(*counts, 0, 0, 0, 0.5, pass_tokens=5, cached_tokens=15, **more)
    stats.rounds.append(round_)
    return describe(GenerationResult("", [], finish_reason, stats), max_new_tokens=8)


def test_the_statistics_say_what_ended_an_answer():
    assert described("stop", 8) == "8 tokens, 16.0 tokens/s | 15 of 20 prompt tokens reused"
    assert described("length", 8).endswith("| ended by --max-new-tokens 8")
    limits = ("max_model_len", "kv_cache_size")
    context, cache = (described("length", 7, limit=limit) for limit in limits)
    assert context.endswith("| the model's context is full: /undo or /clear makes room")
    assert "| the KV cache is full: /undo, /clear or a larger" in cache
    assert described("cancelled", 3).endswith("| cancelled")
    assert described("stop", 3, stop="\n").endswith("| ended by the stop string '\\n'")
    assert "| 100% of 4 draft tokens accepted |" in described("stop", 5, num_drafted=4)
    assert "| draft failures 1 |" in described("stop", 5, draft_failed=True)


def test_ctrl_c_while_an_answer_is_begun_cancels_it():
    cancelled = []

    @contextmanager
    def begin():
        signal.getsignal(signal.SIGINT)(signal.SIGINT, None)  # as Ctrl-C would have it called
        yield SimpleNamespace(cancel=lambda: cancelled.append(True))

    with cancelled_by_interrupts(begin):
        assert cancelled == [True]


def test_each_answer_is_another_choice_of_the_seed_until_that_is_set_anew(chat):
    assert chat.next_options() == {}
    respond(chat, "/set temperature 1")
    respond(chat, "/set seed 7")
    assert [chat.next_options()["choice"] for _ in range(3)] == [0, 1, 2]
    respond(chat, "/set top-k 5")
    assert chat.next_options()["choice"] == 3
    respond(chat, "/set --seed 7")
    options = chat.next_options()
    assert (options["seed"], options["choice"]) == (7, 0)


def test_a_prompt_cache_is_read_in_the_form_that_the_chat_will_have(tmp_path):
    asked, saved = [], []

    class Models:
        draft = None

        def generate(self, prompt, **given):
            asked.append((prompt, given))
            return GenerationResult("", [1], "length", GenerationStats(5))

        def save_cache(self, file):
            saved.append(file)

    rendering, file = {"chat_template_kwargs": {"thinks": False}}, tmp_path / "cache"
    given = {**rendering, "temperature": 0.5, "max_new_tokens": 99}
    use_prompt_cache(Models(), file, Conversation((SYSTEM,)), given, print)
    prompt = (SYSTEM, {"role": "user", "content": ""})
    assert asked == [(prompt, {"max_new_tokens": 1, **rendering})]
    assert saved == [file]
