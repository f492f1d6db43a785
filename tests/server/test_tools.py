"""Tools and reasoning on the server, in chats and responses, and requests that mean harm."""

import json

import jsonschema
import openai
import pytest

from ov_specdec import SpeculativePipeline
from tests.support.server import NAME, official_client, serving
from tests.support.tools import AREA, HERMES, STOP, with_tools

NAMES = "{% for tool in tools %}{{ tool.function.name }} {% endfor %}"
SHORT = HERMES.replace(NAMES, "{{ tools | length }} tools")
"""The template without names of tools, of which many would not fit the context."""

FIELDS = {"model": NAME, "temperature": 0, "parallel_tool_calls": False}
CHAT = {
    **FIELDS,
    "messages": [{"role": "user", "content": "area"}],
    "max_tokens": 150,
    "chat_template_kwargs": {"enable_thinking": False},
}
RESPONSE = {
    **FIELDS,
    "input": "area",
    "max_output_tokens": 150,
    "chat_template_kwargs": {"enable_thinking": False},
}
SCHEMA = AREA["function"]["parameters"]
FLAT = {"type": "function", **AREA["function"]}
PATCH = {"type": "custom", "name": "patch", "description": "Edits."}
MCP = {"type": "namespace", "name": "maps", "description": "Maps.", "tools": [FLAT]}


@pytest.fixture(scope="module")
def server(chat_pair, tmp_path_factory):
    folders = with_tools(chat_pair, tmp_path_factory.mktemp("tools"), SHORT)
    with (
        SpeculativePipeline(*folders, precision="exact", num_threads=1) as pipeline,
        serving(pipeline) as running,
    ):
        yield running


@pytest.fixture(scope="module")
def client(server):
    return official_client(server, openai.OpenAI)


def own(fields):
    """Fields that the official client does not know, in its way."""
    return {k: v for k, v in fields.items() if k != "chat_template_kwargs"} | {
        "extra_body": {"chat_template_kwargs": fields["chat_template_kwargs"]}
    }


def test_the_official_client_calls_in_a_chat(client):
    fields = own(CHAT) | {"tools": [AREA, STOP], "tool_choice": "required"}
    choice = client.chat.completions.create(**fields).choices[0]
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", None)
    [call] = choice.message.tool_calls
    arguments = json.loads(call.function.arguments)
    if call.function.name == "area":
        jsonschema.validate(arguments, SCHEMA)
    with client.chat.completions.stream(**fields) as stream:
        whole = stream.get_final_completion().choices[0]
    assert whole.finish_reason == "tool_calls"
    [same] = whole.message.tool_calls
    assert (same.function.name, same.function.arguments) == (
        call.function.name,
        call.function.arguments,
    )
