"""Agents and clients in programs of their own, on the server as it is."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import openai
import pytest

from lab.benchmarks.figures.tools import agents_tools
from ov_specdec import SpeculativePipeline
from ov_specdec.anthropic.answer import MessagesAnswer
from tests.support.agents import called, scripted
from tests.support.server import NAME, official_client, serving
from tests.support.tiny import EOS
from tests.support.tools import TEMPLATES

DOCS = Path(__file__).parents[2] / "docs"
PAGE = "".join((DOCS / name).read_text(encoding="utf-8") for name in ("tools.md", "agents.md"))
CLIENTS = Path(__file__).parent / "clients"
PACKAGES = (
    *(
        "@anthropic-ai/claude-code@2.1.197",
        "@openai/codex@0.169",
        "opencode-ai@1.18",
        "cline@3.0.65",
        "openai@6",
    ),
    *("ai@6", "@ai-sdk/openai-compatible@2", "zod@4"),
)


@pytest.fixture(scope="module")
def pipeline(agent_model):
    with SpeculativePipeline(agent_model, drafter="suffix", num_threads=1) as made:
        made.check_batch_invariant()
        yield made


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A project with a file that is to be edited."""
    (tmp_path / "greeting.txt").write_text("hello\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def block(language, server, name=NAME, under=""):
    """The first block of the pages under a heading, for a server and a model."""
    page = PAGE[PAGE.index(under) :]
    code = re.search(rf"^```{language}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)[1]
    here = code.replace("http://127.0.0.1:8000", server.url)
    assert here != code
    return here.replace('"main"', f'"{name}"').replace("local/main", f"local/{name}")


def results(prompt):
    """How many results of tools a prompt has."""
    return prompt.count(f"{EOS}tool\n") + prompt.count(f"{EOS}user\n<tool_response>")


def test_the_agent_of_the_documentation_edits_a_file(pipeline, server, folder, capsys):
    answers = [
        called("read_file", path="greeting.txt"),
        called("edit_file", path="greeting.txt", old="hello\n", new="goodbye\n"),
        "It says goodbye.",
    ]
    with scripted(pipeline, lambda prompt: answers[results(prompt)]):
        exec(block("python", server), {})  # noqa: S102
    assert (folder / "greeting.txt").read_text() == "goodbye\n"
    assert capsys.readouterr().out == "It says goodbye.\n"


def test_the_official_client_loops_on_what_is_cached(server):
    """Random weights reason and call in each turn, which sends back all of those before it.

    What was a prompt is found again but for two tokens; answers are read again in time or not.
    """
    client, known = official_client(server, openai.OpenAI), 0
    messages = [{"role": "user", "content": "Look around."}]
    fields = {"tools": agents_tools(most=20), "tool_choice": "required", "model": NAME}
    more = {"cache_salt": "loop", "thinking_token_budget": 16}
    for turn in range(10):
        answer = client.chat.completions.create(
            messages=messages, **fields, seed=turn, extra_body=more
        )
        message, usage = answer.choices[0].message, answer.usage
        assert usage.prompt_tokens_details.cached_tokens >= known - 2
        known = usage.prompt_tokens
        messages.append(message.model_dump(exclude_none=True))
        for call in message.tool_calls:
            json.loads(call.function.arguments)
            result = {"role": "tool", "tool_call_id": call.id, "content": f"Result {turn}"}
            messages.append(result)
    assert any("reasoning_content" in message for message in messages)


def run(command, folder, **environment):
    """Run a program to its end; gives what it has printed."""
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PWD": str(folder), **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """The folder of programs from npm."""
    folder = tmp_path_factory.mktemp("npm")
    run(["npm", "install", "--no-audit", "--no-fund", *PACKAGES], folder)
    return folder / "node_modules" / ".bin"


PATCH = """*** Begin Patch
*** Update File: greeting.txt
@@
-hello
+goodbye
*** End Patch
"""


@pytest.fixture(scope="module")
def coder(agent_model, tmp_path_factory):
    """The same model with a template that writes arguments between tags."""
    template = tmp_path_factory.mktemp("coder") / "coder.jinja"
    template.write_text(TEMPLATES["coder"])
    options = {"drafter": "suffix", "num_threads": 1, "chat_template": template}
    with SpeculativePipeline(agent_model, **options) as made:
        made.check_batch_invariant()
        yield made


SHELL = called("exec_command", cmd="sed -i s/hello/goodbye/ greeting.txt")
TAGGED = (
    f"<tool_call>\n<function=apply_patch>\n<arg=input>\n{PATCH}\n</arg>\n</function>\n</tool_call>"
)


@pytest.mark.deep
@pytest.mark.parametrize(
    ("shape", "name", "call"),
    [
        ("pipeline", "local-model", SHELL),
        ("pipeline", "gpt-5.5", called("apply_patch", input=PATCH)),
        ("coder", "gpt-5.5", TAGGED),
    ],
    ids=["shell", "patch", "patch by its grammar"],
)
def test_codex_edits_a_file(shape, name, call, programs, folder, request):
    pipeline, home = request.getfixturevalue(shape), folder / "home"
    home.mkdir()
    command = ["exec", "--skip-git-repo-check", "--sandbox", "danger-full-access"]
    with (
        scripted(pipeline, lambda prompt: "It is done." if results(prompt) else call),
        serving(pipeline, served_model_name=name) as server,
    ):
        (home / "config.toml").write_text(block("toml", server, name))
        told = run([programs / "codex", *command, "Say goodbye."], folder, CODEX_HOME=str(home))
    assert (folder / "greeting.txt").read_text() == "goodbye\n"
    assert told == "It is done.\n"


@pytest.mark.deep
def test_opencode_edits_a_file(pipeline, programs, folder):
    file = str(folder / "greeting.txt")
    edit = called("edit", filePath=file, oldString="hello", newString="goodbye")
    answers = [called("read", filePath=file), edit, "It is done."]

    def script(prompt):
        return answers[results(prompt)] if "<tool_call>" in prompt else "A title"

    with scripted(pipeline, script), serving(pipeline, served_model_name="tiny") as server:
        (folder / "opencode.json").write_text(block("json", server, "tiny"))
        told = run([programs / "opencode", "run", "Say goodbye."], folder, HOME=str(folder))
    assert (folder / "greeting.txt").read_text() == "goodbye\n"
    assert "It is done." in told


@pytest.fixture
def node(programs, server, tmp_path):
    """Runs a script beside the packages; gives what it has printed."""

    def answered(name):
        script = shutil.copy(CLIENTS / name, programs.parents[1])
        return json.loads(run(["node", script, f"{server.url}/v1", NAME], tmp_path))

    return answered


@pytest.mark.deep
def test_cline_edits_a_file(pipeline, programs, folder):
    file = str(folder / "greeting.txt")
    edit = called("editor", path=file, old_text="hello", new_text="goodbye")
    answers = [called("read_files", path=file), edit, "It is done."]
    with (
        scripted(pipeline, lambda prompt: answers[results(prompt)]),
        serving(pipeline, served_model_name="main") as server,
    ):
        commands = block("bash", server, "main", "## Cline")
        path = f"{programs}{os.pathsep}{os.environ['PATH']}"
        told = run(["bash", "-ec", commands], folder, HOME=str(folder), PATH=path)
    assert (folder / "greeting.txt").read_text() == "goodbye\n"
    assert "It is done." in told


@pytest.mark.deep
def test_claude_code_edits_a_file_and_runs_a_command(pipeline, programs, folder, monkeypatch):
    file, ended, end = str(folder / "greeting.txt"), [], MessagesAnswer.end
    answers = [
        called("Read", file_path=file),
        called("Edit", file_path=file, old_string="hello", new_string="goodbye"),
        called("Bash", command="cp greeting.txt copy.txt", description="Copy the file"),
        "It is done.",
    ]
    monkeypatch.setattr(
        MessagesAnswer, "end", lambda self: (ended.extend(self.stats), end(self))[1]
    )
    with (
        scripted(pipeline, lambda prompt: answers[results(prompt)]),
        serving(pipeline, served_model_name="main") as server,
    ):
        commands = block("bash", server, "main", "## Claude Code").strip()
        asked = f"{commands} -p 'Say goodbye.' --allowedTools Read,Edit,Bash"
        path = f"{programs}{os.pathsep}{os.environ['PATH']}"
        told = run(["bash", "-ec", asked], folder, HOME=str(folder), PATH=path)
    assert told == "It is done.\n"
    assert (folder / "copy.txt").read_text() == "goodbye\n"
    assert len(ended) == len(answers)
    assert all(each.cached_tokens >= 0.95 * each.prompt_tokens for each in ended[1:])


@pytest.mark.deep
def test_the_ai_sdk_calls_tools(node):
    """Random weights are made to call one in each step: its schemas check the arguments."""
    told = node("ai_sdk_tools.mjs")
    for way in ("whole", "streamed"):
        assert [reason for reason, _ in told[way]] == ["tool-calls"] * 5
    assert told["calls"] == sum(count for way in ("whole", "streamed") for _, count in told[way])
    assert told["calls"] >= 10


@pytest.mark.deep
def test_clients_in_javascript_get_what_python_gets(node, server):
    asked = {"messages": [{"role": "user", "content": "return width"}], "max_tokens": 6}
    answer = server.post("/v1/chat/completions", temperature=0, **asked).json()
    chat = answer["choices"][0]["message"]["content"]
    completion = server.complete("def area(", max_tokens=6)["choices"][0]["text"]
    ways = ("chat", "chat_stream", "chat_helper", "response", "response_helper")
    assert node("openai.mjs") == {
        **dict.fromkeys(ways, chat),
        **dict.fromkeys(("completion", "completion_stream"), completion),
        "models": [NAME],
        "refused": "tools[0].function",
    }
    # The AI SDK writes even a single prompt as a conversation.
    prompt = "user:\ndef area(\n\nassistant:\n"
    answer = server.complete(prompt, stop=["\nuser:"], max_tokens=6)
    [choice], tokens = answer["choices"], answer["usage"]["completion_tokens"]
    own = {"text": choice["text"], "tokens": tokens, "reason": choice["finish_reason"]}
    told = {"text": chat, "tokens": 6, "reason": "length"}
    assert node("ai_sdk.mjs") == {
        **dict.fromkeys(("chat", "chat_stream"), told),
        **dict.fromkeys(("completion", "completion_stream"), own),
        "refused": 404,
    }


def run_with(package, script, server, folder, *more):
    """What a script prints in an environment that has a package."""
    run([sys.executable, "-m", "venv", "env"], folder)
    python = folder / "env" / "bin" / "python"
    run([python, "-m", "pip", "install", "--quiet", package], folder)
    return json.loads(run([python, CLIENTS / script, f"{server.url}/v1", NAME, *more], folder))


@pytest.mark.deep
@pytest.mark.parametrize(
    ("package", "script", "endpoints"),
    [
        ("pydantic-ai-slim[openai]>=2.68,<3", "pydantic_agent.py", 1),
        ("openai-agents>=0.24,<0.25", "openai_agent.py", 2),
    ],
    ids=["pydantic-ai", "openai-agents"],
)
def test_frameworks_run_in_their_own_environments(server, package, script, endpoints, tmp_path):
    """Random weights call a tool in each of 20 turns: nothing but the grammar makes them valid."""
    told = run_with(package, script, server, tmp_path, "20")
    assert told["turns"] == 20 * endpoints
    assert set(told["calls"]) == {"locate", "move"}
    assert len(told["calls"]) >= told["turns"]


@pytest.mark.deep
def test_instructor_gets_instances_at_the_first_attempt(server, tmp_path):
    answer = run_with("instructor>=1.17,<2", "with_instructor.py", server, tmp_path)
    assert answer["made"] == answer["last"] == json.loads(answer["text"])
    assert answer["made"]["name"] in ("small", "large")
    assert answer["num_partial"] > 3
