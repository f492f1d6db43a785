"""Tools and reasoning on the server, in chats and responses, and requests that mean harm."""

import json

import jsonschema
import ollama
import openai
import pytest

from ov_specdec import SpeculativePipeline
from ov_specdec.ollama.requests import OllamaRequest
from tests.support.server import NAME, official_client, serving
from tests.support.tools import AREA, STOP, TEMPLATES, with_tools

NAMES = "{% for tool in tools %}{{ tool.function.name }} {% endfor %}"
CLOSED = "</think>\n\n{% endif %}\n{%- endif %}"
TEMPLATE = (
    TEMPLATES["hermes"]
    .replace(NAMES, "{{ tools | length }} tools")
    .replace(CLOSED, "</think>\n\n{% else %}<think>\n{% endif %}\n{%- endif %}")
)
"""It begins the reasoning, and names no tools: many names would not fit the context."""

FIELDS = {"model": NAME, "temperature": 0, "parallel_tool_calls": False}
CHAT = {**FIELDS, "messages": [{"role": "user", "content": "area"}], "max_tokens": 120}
RESPONSE = {**FIELDS, "input": "area", "max_output_tokens": 120}
BRIEF = {"thinking_token_budget": 1}
FORCED = {"tool_choice": "required", **BRIEF}
BY_CLIENT = {"tool_choice": "required", "extra_body": BRIEF}
FLAT = {"type": "function", **AREA["function"]}
PATCH = {"type": "custom", "name": "patch", "description": "Edits."}
MCP = {"type": "namespace", "name": "maps", "description": "Maps.", "tools": [FLAT]}


@pytest.fixture(scope="module")
def server(chat_pair, tmp_path_factory):
    assert all(part in TEMPLATES["hermes"] for part in (CLOSED, NAMES))
    folders = with_tools(chat_pair, tmp_path_factory.mktemp("tools"), TEMPLATE)
    with (
        SpeculativePipeline(*folders, precision="exact", num_threads=1) as pipeline,
        serving(pipeline) as running,
    ):
        yield running


@pytest.fixture(scope="module")
def client(server):
    return official_client(server, openai.OpenAI)


def test_the_official_client_calls_in_a_chat(client):
    fields = {**CHAT, **BY_CLIENT, "tools": [AREA]}
    choice = client.chat.completions.create(**fields).choices[0]
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", None)
    [call] = choice.message.tool_calls
    jsonschema.validate(json.loads(call.function.arguments), AREA["function"]["parameters"])
    with client.chat.completions.stream(**fields) as stream:
        whole = stream.get_final_completion().choices[0]
    [same] = whole.message.tool_calls
    assert whole.finish_reason == "tool_calls"
    assert (same.function.name, same.function.arguments) == ("area", call.function.arguments)
    assert whole.message.reasoning_content == choice.message.reasoning_content != ""


def test_reasoning_has_a_field_of_its_own_and_can_be_off(client, server):
    fields = {**CHAT, **FORCED, "tools": [AREA]}
    [long] = server.post("/v1/chat/completions", **fields | {"thinking_token_budget": 5}).json()[
        "choices"
    ]
    [brief] = server.post("/v1/chat/completions", **fields).json()["choices"]
    reasoning = long["message"]["reasoning_content"]
    assert reasoning.startswith(brief["message"]["reasoning_content"]) and reasoning != "f"
    quiet = server.post("/v1/chat/completions", **fields, reasoning_effort="none").json()
    assert "reasoning_content" not in quiet["choices"][0]["message"]
    assert quiet["choices"][0]["finish_reason"] == "tool_calls"


@pytest.mark.parametrize("tool", [FLAT, PATCH, MCP], ids=lambda tool: tool["type"])
def test_the_official_client_calls_in_a_response(client, tool):
    fields = {**RESPONSE, **BY_CLIENT, "tools": [tool], "reasoning": {"effort": "low"}}
    answer = client.responses.create(**fields)
    assert (answer.tools[0].name, answer.reasoning.effort) == (tool["name"], "low")
    events = [*client.responses.create(**fields, stream=True)]
    same = events[-1].response
    (thought, call), (_, other) = answer.output, same.output
    assert thought.content[0].text
    done = [event.item for event in events if event.type == "response.output_item.done"]
    assert [(item.id, item.type) for item in done] == [(i.id, i.type) for i in same.output]
    if tool is PATCH:
        assert (call.type, call.name, call.input) == ("custom_tool_call", "patch", other.input)
        deltas = [e.delta for e in events if e.type == "response.custom_tool_call_input.delta"]
        assert "".join(deltas) == call.input
        return
    assert (call.type, call.name, call.arguments) == ("function_call", "area", other.arguments)
    assert call.namespace == ("maps" if tool is MCP else None)
    jsonschema.validate(json.loads(call.arguments), AREA["function"]["parameters"])


def test_a_second_turn_takes_what_the_first_gave(client):
    fields = {**RESPONSE, **BY_CLIENT, "tools": [FLAT], "include": ["reasoning.encrypted_content"]}
    first = client.responses.create(**fields)
    thought, call = first.output
    kept = {"type": "reasoning", "summary": [], "encrypted_content": thought.encrypted_content}
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "4"}
    prompts = [
        client.responses.create(
            **fields | {"input": [{"role": "user", "content": "area"}, earlier, call, output]}
        ).usage.input_tokens
        for earlier in (thought, {"id": "rs_1", **kept})
    ]
    chat = {**CHAT, **BY_CLIENT, "tools": [AREA]}
    message = client.chat.completions.create(**chat).choices[0].message
    result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "4"}
    again = client.chat.completions.create(
        **chat | {"messages": [*CHAT["messages"], message, result], "max_tokens": 3}
    )
    assert {*prompts} == {again.usage.prompt_tokens}


def test_ollamas_interface_gives_the_same_reasoning_and_calls(server, monkeypatch):
    client = ollama.Client(server.url)
    assert client.show(NAME).capabilities == ["completion", "tools", "thinking"]
    asked = {"model": NAME, "messages": CHAT["messages"]}

    def compare(length, think=None, **fields):
        """Both interfaces; gives the message of OpenAI's, and Ollama's whole answer and calls."""
        body = {**CHAT, "tools": [AREA], "max_tokens": length, **fields}
        message = server.post("/v1/chat/completions", **body).json()["choices"][0]["message"]
        own = {**asked, "tools": [AREA], "think": think}  # of which the client drops `maxLength`
        own["options"] = {"temperature": 0, "num_predict": length}
        whole = ollama.ChatResponse(**server.post("/api/chat", **own, stream=False).json())
        lines = server.post("/api/chat", **own).text.splitlines()
        pieces = [ollama.ChatResponse(**json.loads(line)).message for line in lines]
        for name, field in (("content", "content"), ("thinking", "reasoning_content")):
            text = "".join(getattr(each, name) or "" for each in pieces)
            assert text == (getattr(whole.message, name) or "") == (message.get(field) or "")
        calls = [call for each in pieces for call in each.tool_calls or ()]
        assert calls == [*(whole.message.tool_calls or ())]
        return message, whole, calls

    _, whole, _ = compare(8)
    assert whole.message.thinking and whole.done_reason == "length"
    _, whole, _ = compare(8, think=False, reasoning_effort="none")
    assert whole.message.thinking is None

    common = OllamaRequest.common_options  # a tiny model calls nothing by itself
    more = {**FORCED, "parallel_tool_calls": False}
    monkeypatch.setattr(OllamaRequest, "common_options", lambda body: {**common(body), **more})
    message, whole, [call] = compare(120, **FORCED)
    function = message["tool_calls"][0]["function"]
    assert (call.function.name, whole.done_reason) == ("area", "stop")
    assert call.function.arguments == json.loads(function["arguments"])
    _, cut, calls = compare(12, **FORCED)
    assert (cut.done_reason, calls) == ("length", [])

    options = {"temperature": 0}
    [*pieces, _] = client.chat(**asked, tools=[STOP], options=options, stream=True)
    message = pieces[-1].message
    assert [call.function.name for call in message.tool_calls] == ["stop"]
    result = {"role": "tool", "tool_name": "stop", "content": "4"}
    asked["messages"] = [*CHAT["messages"], message, result]
    assert client.chat(**asked, tools=[STOP], options=options).message.tool_calls


def test_two_hundred_tools_are_as_one(server):
    function = {"description": "Of a field." * 20, "parameters": AREA["function"]["parameters"]}
    many = [{"type": "function", "function": {"name": f"tool-{n}", **function}} for n in range(200)]
    named = {"type": "function", "function": {"name": "tool-150"}}
    for choice in ("required", named):
        fields = {**CHAT, **FORCED, "tools": many, "tool_choice": choice}
        [answer] = server.post("/v1/chat/completions", **fields).json()["choices"]
        assert answer["finish_reason"] == "tool_calls"
    assert answer["message"]["tool_calls"][0]["function"]["name"] == "tool-150"


def test_a_template_that_ignores_tools_is_a_reason(chat_pair):
    with (
        SpeculativePipeline(*chat_pair, precision="exact", num_threads=1) as pipeline,
        serving(pipeline) as plain,
    ):
        answer = plain.post("/v1/chat/completions", **CHAT, tools=[AREA])
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "tools")
        quiet = plain.post("/v1/chat/completions", **CHAT, reasoning_effort="high")
        assert quiet.status_code == 200
