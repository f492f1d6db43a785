"""Clients in JavaScript, from npm, on the server as it is."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.server import NAME

pytestmark = pytest.mark.deep

SCRIPTS = Path(__file__).parent / "clients"
PACKAGES = ("openai@6", "ai@6", "@ai-sdk/openai-compatible@2")
CHAT = {"messages": [{"role": "user", "content": "return width"}], "max_tokens": 6}


@pytest.fixture(scope="module")
def modules(tmp_path_factory):
    """A folder with the packages."""
    folder = tmp_path_factory.mktemp("npm")
    command = ["npm", "install", "--no-audit", "--no-fund", *PACKAGES]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=300)
    return folder


@pytest.fixture
def run(modules, server):
    """Runs a script beside the packages; gives what it has printed."""

    def run(name):
        script = shutil.copy(SCRIPTS / name, modules)
        command = ["node", script, f"{server.url}/v1", NAME]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


@pytest.fixture
def chat(server):
    """What a chat gets."""
    answer = server.post("/v1/chat/completions", temperature=0, **CHAT).json()
    return answer["choices"][0]["message"]["content"]


def test_openais_client(run, server, chat):
    completion = server.complete("def area(", max_tokens=6)["choices"][0]["text"]
    assert run("openai.mjs") == {
        "models": [NAME],
        "chat": chat,
        "chat_stream": chat,
        "chat_helper": chat,
        "completion": completion,
        "completion_stream": completion,
        "response": chat,
        "response_helper": chat,
        "refused": "tools[0].function",
    }


def test_the_ai_sdk(run, server, chat):
    # It writes even a single prompt as a conversation.
    prompt = "user:\ndef area(\n\nassistant:\n"
    answer = server.complete(prompt, stop=["\nuser:"], max_tokens=6)
    [choice], tokens = answer["choices"], answer["usage"]["completion_tokens"]
    completion = {"text": choice["text"], "tokens": tokens, "reason": choice["finish_reason"]}
    told = {"text": chat, "tokens": 6, "reason": "length"}
    assert run("ai_sdk.mjs") == {
        "chat": told,
        "chat_stream": told,
        "completion": completion,
        "completion_stream": completion,
        "refused": 404,
    }
