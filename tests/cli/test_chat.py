"""A chat without a terminal and without a model: conversation, commands, and what is shown."""

import json
import math

import click
import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from ov_specdec.cli import chat as chat_module
from ov_specdec.cli.app import app
from ov_specdec.cli.chat import command_completer, converse
from ov_specdec.cli.conversation import CHAT_COMMANDS, CHAT_SALT, Chat, describe
from ov_specdec.cli.options import GENERATION
from ov_specdec.cli.terminal import Transcript, by_flag
from ov_specdec.errors import OptionError
from ov_specdec.options.generation import GenerationOptions
from ov_specdec.results.chunks import Chunk, GenerationResult
from ov_specdec.results.parts import Arguments, CallBegin, CallEnd, Reasoning, Text
from ov_specdec.results.stats import GenerationStats, RoundStats

SYSTEM = {"role": "system", "content": "Be brief."}
QUESTION = {"role": "user", "content": "Hello"}
ANSWER = {"role": "assistant", "content": "Hi"}
AGAIN = {"role": "user", "content": "Why?"}


def options():
    known = by_flag(app.get_command(click.Context(app), "chat"))
    return {flag: each for flag, each in known.items() if each.name in GENERATION}


class Answering:
    """Models that answer "Hi", and keep what they were asked, with which options."""

    drafter = "model"

    def __init__(self):
        self.asked, self.options = [], []

    def complete_options(self, **given):
        return GenerationOptions(**given)

    def stream(self, messages, **options):
        self.asked.append(messages)
        self.options.append(options)
        if messages[-1]["content"] == "bad":
            raise OptionError("the model's context is full")
        ended = (
            ("", [], "cancelled") if messages[-1]["content"] == "cancelled" else ("Hi", [1], "stop")
        )
        return GenerationResult(*ended, GenerationStats(20))


@pytest.fixture
def chat():
    messages = [SYSTEM, QUESTION, ANSWER]
    return Chat(Answering(), lambda answer: answer, options(), {}, messages)


def error(chat, line):
    """The message of a line that is refused and changes nothing."""
    before = (chat.messages, chat.given)
    with pytest.raises(OptionError) as caught:
        chat.respond(line)
    assert (chat.messages, chat.given) == before
    return str(caught.value)


def test_a_line_is_a_message_to_be_answered(chat):
    for line, text in (("Why?", "Why?"), ("//etc/hosts?", "/etc/hosts?"), ("a\n/b", "a\n/b")):
        before, question = chat.messages, {"role": "user", "content": text}
        assert chat.respond(line).endswith("0 of 20 prompt tokens reused")
        assert chat.models.asked[-1] == [*before, question]
        assert chat.messages == [*before, question, ANSWER]
    converse(chat, [" \n ", ""], goes_on=False)
    assert len(chat.models.asked) == 3
    before = chat.messages
    assert "the conversation is unchanged" in chat.respond("cancelled")
    assert chat.messages == before


def test_retry_asks_the_last_message_again(chat):
    chat.respond("/retry")
    assert chat.models.asked == [[SYSTEM, QUESTION]]
    assert chat.messages == [SYSTEM, QUESTION, ANSWER]


@pytest.mark.parametrize(
    ("before", "line", "note", "after"),
    [
        ([SYSTEM, QUESTION, ANSWER], "/clear", "except for the system message", [SYSTEM]),
        ([QUESTION, ANSWER], "/clear", "the conversation is empty", []),
        ([SYSTEM, QUESTION, ANSWER, AGAIN, ANSWER], "/undo", "'Why?'", [SYSTEM, QUESTION, ANSWER]),
        ([SYSTEM, QUESTION, ANSWER], "/undo", "'Hello'", [SYSTEM]),
        ([QUESTION], "/system", "there is no system message", [QUESTION]),
        ([SYSTEM, QUESTION], "/system", "system: Be brief.", [SYSTEM, QUESTION]),
        ([QUESTION], "/system  Be brief.", "system: Be brief.", [SYSTEM, QUESTION]),
        ([{**SYSTEM, "content": "x"}, AGAIN], "/system Be brief.", "Be brief.", [SYSTEM, AGAIN]),
        ([SYSTEM, QUESTION], '/system ""', "there is no system message", [QUESTION]),
    ],
)
def test_commands_change_the_conversation(chat, before, line, note, after):
    chat.messages = before
    assert note in chat.respond(line)
    assert chat.messages == after


@pytest.mark.parametrize("line", ["/undo", "/retry"])
def test_of_an_empty_conversation_nothing_is_taken_back(chat, line):
    chat.messages = [SYSTEM] if line == "/undo" else []
    assert error(chat, line) == "the conversation is empty: write a message first"


def test_a_saved_conversation_is_loaded_again(chat, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    chat.messages.append({"role": "user", "content": "größer\n🙂"})
    messages = chat.messages
    assert chat.respond("/save ~/a b.json") == "saved 4 messages in '~/a b.json'"
    saved = (tmp_path / "a b.json").read_text(encoding="utf-8")
    assert json.loads(saved) == messages
    assert "größer" in saved
    (tmp_path / "a b.json").write_text(saved, encoding="utf-8-sig")
    chat.respond("/clear")
    assert chat.respond("/load ~/a b.json") == "loaded 4 messages from '~/a b.json'"
    assert chat.messages == messages


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (None, "cannot be loaded (No such file or directory): give another file"),
        (b"\xff\xfe", "cannot be loaded ('utf-8' codec can't decode"),
        (b"[" * 100_000, "cannot be loaded (maximum recursion"),
        (b"{}", "cannot be loaded (it holds no list of messages)"),
        (b'[{"role": "user", "tool_calls": [1]}]', "cannot be loaded (messages[0] has no content"),
    ],
    ids=["missing", "no text", "deep", "no list", "a user's call"],
)
def test_a_bad_file_is_refused_and_nothing_changes(content, complaint, chat, tmp_path):
    if content is not None:
        (tmp_path / "x").write_bytes(content)
    assert f"'{tmp_path / 'x'}' {complaint}" in error(chat, f"/load {tmp_path / 'x'}")


def test_commands_that_cannot_be_followed_say_what_is_wrong(chat):
    assert "no command '/cler' (did you mean /clear?); start" in error(chat, "/cler")
    assert "no command '/xyz' (/help lists all)" in error(chat, "/xyz")
    assert error(chat, "/load ") == "/load lacks its argument: type /load FILE"
    nowhere = "'~nobody-at-all/x' cannot be written (No such file or directory): give another file"
    assert nowhere in error(chat, "/save ~nobody-at-all/x")


def test_help_names_every_command_and_option_lists_every_option(chat):
    assert all(f"{name} " in chat.respond("/help") for name in CHAT_COMMANDS)
    listed = [line.split()[0] for line in chat.respond("/set").splitlines()]
    assert "max-new-tokens" in listed
    assert len(listed) == len(options())


SET = {
    "top-k 40": ("top_k", 40),
    "--temperature 0.7": ("temperature", 0.7),
    "max_new_tokens 3": ("max_new_tokens", 3),
    "ignore-eos true": ("ignore_eos", True),
    "do-sample off": ("do_sample", False),
    r"stop \n\n": ("stop_strings", ("\n\n",)),
    "stop the end": ("stop_strings", ("the end",)),
    "bad-words-ids 3,4": ("bad_words_ids", ((3, 4),)),
    "logit-bias 3=-inf": ("logit_bias", {3: -math.inf}),
}


@pytest.mark.parametrize("line", SET)
def test_set_reads_values_as_the_command_line_does(line, chat):
    key, value = SET[line]
    chat.respond(f"/set {line}")
    assert chat.given == {key: value}


BAD_SETTINGS = {
    "top-k many": "Invalid value for '--top-k': 'many' is not a valid integer",
    "top-p 2": "top_p=2.0 must be a number from 0 to 1",
    r"stop \d": r"'\d' has an unknown escape",
    "tempreature 1": "there is no option 'tempreature': did you mean temperature?",
    "main x": "there is no option 'main'",
}


@pytest.mark.parametrize("line", BAD_SETTINGS)
def test_bad_settings_are_refused(line, chat):
    assert BAD_SETTINGS[line] in error(chat, f"/set {line}")


def test_set_without_a_value_brings_the_default_back(chat):
    chat.respond("/set max-new-tokens 4")
    chat.respond("/set top-k 3")
    assert chat.given == {"max_new_tokens": 4, "top_k": 3}
    assert chat.respond("/set max-new-tokens") == "max-new-tokens has its default"
    assert chat.given == {"top_k": 3}


def completions(text):
    completer = command_completer(["top-k", "top-p", "seed"])
    return [c.text for c in completer.get_completions(Document(text), CompleteEvent())]


def test_commands_options_and_files_are_completed(tmp_path):
    (tmp_path / "talk.json").touch()
    assert completions("/s") == ["/system", "/set", "/save"]
    assert completions("/") == list(CHAT_COMMANDS)
    assert completions("/set top") == ["top-k", "top-p"]
    assert completions("/set s") == ["seed"]
    assert completions(f"/load {tmp_path}/ta") == ["lk.json"]
    for text in ("Tell me", "s", "/undo ", "a\n/s", "/xyz t"):
        assert completions(text) == []


def test_an_error_in_an_answer_takes_the_message_back(chat, monkeypatch):
    before, errors = chat.messages, []
    monkeypatch.setattr("ov_specdec.cli.chat.show_error", errors.append)
    converse(chat, ["/nothing", "bad", "good", "/exit", "never"], goes_on=True)
    assert [str(error).split(" ")[0] for error in errors] == ["there", "the"]
    assert chat.messages == [*before, {"role": "user", "content": "good"}, ANSWER]


def described(
    finish_reason, num_generated, num_drafted=0, limit="max_new_tokens", stop=None, **more
):
    stats = GenerationStats(20, length_limit=limit, stop_string=stop)
    counts = num_drafted, num_drafted, num_generated
    round_ = RoundStats(*counts, 0, 0, 0, 0.5, pass_tokens=5, cached_tokens=15, **more)
    stats.rounds.append(round_)
    return describe(GenerationResult("", [], finish_reason, stats))


def test_the_statistics_say_what_ended_an_answer():
    assert described("stop", 8) == "8 tokens, 16.0 tokens/s | 15 of 20 prompt tokens reused"
    assert described("length", 8).endswith("| ended by --max-new-tokens 8")
    assert "/undo or /clear makes room" in described("length", 7, limit="max_model_len")
    assert "| the KV cache is full:" in described("length", 7, limit="kv_cache_size")
    failed = described("stop", 3, num_drafted=4, stop="\n", draft_failed=True)
    for part in ("100% of 4 draft tokens accepted", "draft failures 1", "the stop string '\\n'"):
        assert f" {part}" in failed


def test_each_answer_is_another_choice_of_the_seed_until_that_is_set_anew(chat):
    lines = ["a", "/set temperature 1", "/set seed 7", "b", "c", "/retry", "/set top-k 5", "d"]
    converse(chat, [*lines, "/set --seed 7", "e"], goes_on=False)
    first, *others = chat.models.options
    assert first == {"cache_salt": CHAT_SALT}
    assert [(each["seed"], each["choice"]) for each in others] == [(7, n) for n in (0, 1, 2, 3, 0)]
    converse(chat, ["/set cache-prompt false", "a"], goes_on=False)
    assert GenerationOptions(**chat.models.options[-1]).cache_salt is None


class Calling(Answering):
    """Models that call two tools, and answer once they have both results."""

    def stream(self, messages, **options):
        if messages[-1]["role"] == "tool":
            return super().stream(messages, **options)
        self.asked.append(messages)
        parts = (Reasoning("Hm"), *(p for call in CALLS for p in call))
        chunk = Chunk("", [1], "plain", parts=parts)
        return GenerationResult("", [1], "tool_calls", GenerationStats(20), chunks=[chunk])


CALLS = [
    (CallBegin("area"), Arguments('{"unit": '), Arguments('"m"}'), CallEnd()),
    (CallBegin("stop"), Arguments("{}"), CallEnd()),
]


def test_calls_wait_for_their_results(chat, tmp_path):
    chat.models = Calling()
    assert error(chat, "/tool 12") == "no call waits for a result: write a message"
    assert chat.respond("How large?").endswith(
        "\narea waits for its result: /tool TEXT or /tool @FILE"
    )
    answer = chat.messages[-1]
    assert (answer["content"], answer["reasoning_content"]) == ("", "Hm")
    functions = [call["function"] for call in answer["tool_calls"]]
    assert functions == [
        {"name": "area", "arguments": {"unit": "m"}},
        {"name": "stop", "arguments": {}},
    ]
    assert "cannot be read" in error(chat, f"/tool @{tmp_path}/nowhere")
    (tmp_path / "result").write_text("12 m²", encoding="utf-8-sig")
    assert chat.respond(f"/tool @{tmp_path}/result").startswith("stop waits for its result")
    assert len(chat.models.asked) == 1
    chat.respond("/tool done")
    first, second = chat.models.asked[-1][-2:]
    assert (first["name"], first["content"]) == ("area", "12 m²")
    assert (second["name"], second["content"]) == ("stop", "done")
    ids = [call["id"] for call in answer["tool_calls"]]
    assert [first["tool_call_id"], second["tool_call_id"]] == ids
    assert len({*ids}) == 2
    assert chat.messages[-1] == ANSWER
    assert error(chat, "/tool 12").startswith("no call waits")


def test_reasoning_and_calls_are_shown_apart_from_the_text():
    chunks = [
        Chunk("", [1], "plain", parts=(Reasoning("It "),)),
        Chunk("Well", [2], "plain", parts=(Reasoning("is"), Text("Well"), *CALLS[0])),
        Chunk("", [3], "plain", parts=CALLS[1]),
    ]
    shown = Transcript()
    pieces = [piece for chunk in chunks for piece in shown.pieces(chunk)]
    assert "".join(text for text, is_reasoning in pieces if is_reasoning) == "It is\n"
    text = "".join(text for text, is_reasoning in pieces if not is_reasoning)
    assert text == 'Well\narea {"unit": "m"}\nstop {}'
    assert list(Transcript().pieces(Chunk("Hi", [1], "plain"))) == [("Hi", False)]


LAST = Chunk("", [], "plain", finish_reason="stop", stats=GenerationStats(1))


class Stream:
    """An answer of these chunks."""

    def __init__(self, *chunks):
        self.chunks = iter([*chunks, LAST])

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def __next__(self):
        return next(self.chunks)

    def __iter__(self):
        return self


def test_accepted_draft_tokens_have_a_colour(capsys, monkeypatch):
    monkeypatch.setattr("click.utils.should_strip_ansi", lambda *_: False)
    for no_color, shown in ((False, "\x1b[38;2;0;114;178md\te f\x1b[0m"), (True, "d\te f\x1b[0m")):
        monkeypatch.setattr(chat_module.console, "no_color", no_color)
        chunks = Chunk("a\t[b]\n", [1], "plain"), Chunk("d\te f", [2], "draft")
        answer = chat_module.show_answer(Stream(*chunks), show_draft=True)
        assert capsys.readouterr().out == f"a\t[b]\n\x1b[0m{shown}\n"
        assert answer.text == "a\t[b]\nd\te f"


@pytest.mark.parametrize("show_draft", [False, True])
def test_what_is_no_terminal_gets_the_text_as_it_is(capsys, show_draft):
    text = "a\t[b] " + 90 * "c" + " 模型 d"
    stream = Stream(Chunk(text, [1], "plain"))
    chat_module.show_answer(stream, show_draft=show_draft)
    assert capsys.readouterr().out == f"{text}\n"


def test_a_call_that_is_stopped_is_no_answer(chat):
    class Stopped(Answering):
        def stream(self, messages, **options):
            chunk = Chunk("", [1], "plain", parts=CALLS[0][:2])
            return GenerationResult("", [1], "cancelled", GenerationStats(20), chunks=[chunk])

    chat.models, before = Stopped(), chat.messages
    assert chat.respond("How large?").endswith("so the conversation is unchanged")
    assert chat.messages == before
