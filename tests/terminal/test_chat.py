"""The command `chat` as it is used: in a pseudo-terminal, and with stdin piped in."""

import json
import os
import re
import shutil
import sys

import pytest

from ov_specdec.models.locate import embedded_folder
from tests.support.chats import PLAIN
from tests.support.command_line import run

if sys.platform == "win32":
    pytest.skip("there are no pseudo-terminals", allow_module_level=True)

import pexpect

READY = "\x1b[?2004h"
"""Bracketed paste is switched on: a line may be typed."""

ANSWERS = "\x1b[1A\x1b[2K"
"""The spinner is removed: the first tokens of an answer follow."""

DEADLINE = 120


class Talk:
    """A chat in a terminal of its own."""

    def __init__(self, models, home, *options):
        command = ["-m", "ov_specdec", "chat", "--main", models / "main", "--draft"]
        command += [models / "draft", "--max-new-tokens", 8, "--ignore-eos", *options]
        command += ["--static-shapes", 4]
        self.history = home / "ov-specdec" / "history"
        environment = {**os.environ, "TERM": "xterm-256color", "XDG_CACHE_HOME": str(home)}
        environment["PROMPT_TOOLKIT_NO_CPR"] = "1"  # nobody answers where the cursor is
        environment.pop("NO_COLOR", None)
        self.process = pexpect.spawn(
            sys.executable,
            list(map(str, command)),
            env=environment,
            dimensions=(40, 160),
            encoding="utf-8",
            timeout=DEADLINE,
        )
        self.process.delaybeforesend = None
        self.greeting = plain(self.expect(READY))

    def expect(self, text):
        """Read up to this text; returns what came before it."""
        self.process.expect_exact(text)
        return self.process.before

    def send(self, keys):
        """Type, and return what is shown until the next line may be typed."""
        self.process.send(keys)
        return self.expect(READY)

    def tell(self, line):
        """Type a line and Enter; returns the lines that are shown below it, without colours."""
        shown = self.send(f"{line}\r").partition("\x1b[?2004l")[2]
        return plain(shown).strip().splitlines()

    def saved(self, tmp_path):
        """The messages of the conversation, as /save writes them."""
        self.tell(f"/save {tmp_path}/saved.json")
        return json.loads((tmp_path / "saved.json").read_text(encoding="utf-8"))


def plain(shown):
    """Without a spinner and escape sequences."""
    shown = re.sub(r"(?s).*\x1b\[1A\x1b\[2K", "", shown)
    return re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", shown)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """The embedded pair, as a chat model."""
    folder = tmp_path_factory.mktemp("chat")
    for role in ("main", "draft"):
        shutil.copytree(embedded_folder(role), folder / role)
    (folder / "main" / "chat_template.jinja").write_text(PLAIN)
    return folder


@pytest.fixture(scope="module")
def process(models, tmp_path_factory):
    talk = Talk(
        models, tmp_path_factory.mktemp("home"), "--system", "Speak Python.", "--show-draft"
    )
    yield talk
    talk.process.close(force=True)


@pytest.fixture
def talk(process):
    """A chat with an empty conversation and the options that it was started with."""
    process.tell("/clear")
    process.tell("/system Speak Python.")
    process.tell("/set max-new-tokens 8")
    return process


def roles(messages):
    return [message["role"] for message in messages]


def test_answers_become_part_of_the_conversation(talk, tmp_path):
    for line in ("def area(width, height):", "class Stack:"):
        *answer, statistics = talk.tell(line)
        assert re.fullmatch(
            r"8 tokens, \d+\.\d tokens/s( \| \d+% of \d+ draft tokens accepted)?"
            r" \| \d+ of \d+ prompt tokens reused \| ended by --max-new-tokens 8",
            statistics,
        )
        messages = talk.saved(tmp_path)
        assert messages[-2] == {"role": "user", "content": line}
        assert messages[-1]["content"].split() == "\n".join(answer).split()
    assert roles(messages) == ["system", "user", "assistant", "user", "assistant"]


def test_messages_may_have_several_lines(talk, tmp_path):
    talk.send("a\x1b\rb\r")  # Alt-Enter
    talk.send("\x1b[200~d\ne\x1b[201~\r")  # pasted
    messages = talk.saved(tmp_path)
    assert [messages[i]["content"] for i in (1, 3)] == ["a\nb", "d\ne"]


def test_a_line_is_edited_completed_and_kept(talk, tmp_path):
    talk.send("clazz\x7f\x7fss\r")
    assert talk.tell("/und\t") == ["removed the message 'class' and its answer"]
    talk.send("\x1b[A\x1b[A\r")  # the line before the last one
    assert talk.saved(tmp_path)[-2]["content"] == "class"
    assert "\n+/undo\n" in talk.history.read_text()
    assert talk.history.stat().st_mode & 0o077 == 0


def test_ctrl_c_ends_the_answer_and_keeps_its_beginning(talk, tmp_path):
    talk.tell("/set max-new-tokens 1500")
    talk.process.send("import os\r")
    talk.expect(ANSWERS)
    talk.process.sendintr()
    shown = plain(talk.expect(READY)).replace("^C", "")
    assert shown.strip().endswith("| cancelled")
    question, answer = talk.saved(tmp_path)[-2:]
    assert question["content"] == "import os"
    assert "".join(answer["content"].split()) in "".join(shown.split())
    assert talk.tell("/undo") == ["removed the message 'import os' and its answer"]


def test_the_start_names_models_and_drafter(talk):
    *_, models, keys = talk.greeting.splitlines()
    assert models == "main, drafter both draft"
    assert keys == "/help lists commands and keys, Ctrl-D leaves"


@pytest.mark.deep
def test_what_is_typed_during_an_answer_is_the_next_line(talk, tmp_path):
    talk.tell("/set max-new-tokens 200")
    talk.process.send("import os\r")
    talk.expect(ANSWERS)
    talk.process.send("typed\r")
    talk.expect(READY)
    talk.expect(READY)
    assert [m["content"] for m in talk.saved(tmp_path)[1::2]] == ["import os", "typed"]


def test_ctrl_c_clears_a_line_and_then_says_how_to_leave(talk):
    assert "leaves the chat" not in talk.send("never sent\x03")
    assert "Ctrl-D or /exit leaves the chat" in talk.send("\x03")


@pytest.mark.deep
def test_ctrl_d_leaves(models, tmp_path):
    talk = Talk(models, tmp_path)
    talk.process.send("\x04")
    talk.process.expect(pexpect.EOF)
    talk.process.close()
    assert talk.process.exitstatus == 0


def test_every_piped_line_is_a_message(chat_pair, tmp_path):
    file, given = tmp_path / "saved.json", ("--main", chat_pair[0], "--draft", chat_pair[1])
    lines = ["//usr", "", "größer", "/undo", "why", f"/save {file}", "/exit", "never"]
    options = ("--max-new-tokens", 6, "--ignore-eos")
    done = run("chat", *given, *options, stdin="\n".join(lines).encode())
    assert done.returncode == 0, done.stderr
    messages = json.loads(file.read_text(encoding="utf-8"))
    assert [m["content"] for m in messages[::2]] == ["/usr", "why"]
    assert done.stdout.startswith(f"{messages[1]['content']}\n")
    assert done.stdout.endswith(f"{messages[3]['content']}\n")
    assert done.stderr.count("ended by --max-new-tokens 6") == 3


def test_an_error_ends_what_is_piped_in(chat_pair):
    given = ("--main", chat_pair[0], "--draft", chat_pair[1])
    done = run("chat", *given, "--max-new-tokens", 4, stdin=b"a\n/set top-p 2\nb\n")
    assert done.returncode == 2
    lines = done.stderr.splitlines()
    assert lines[0].startswith("4 tokens")
    assert lines[1:] == ["error: --top-p 2.0 must be a number from 0 to 1"]
    done = run("chat", *given, stdin=b"\xff\n")
    assert done.returncode == 2
    assert done.stderr.startswith("error: stdin cannot be read as text: 'utf-8' codec")
