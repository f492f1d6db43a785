"""Anthropic's Messages on the server, by its own client and by what Claude Code sends."""

import json
from contextlib import nullcontext

import anthropic
import pytest

from ov_specdec import SpeculativePipeline
from ov_specdec.anthropic.requests import CountBody, MessagesBody
from ov_specdec.api.body import UnknownFields, read
from ov_specdec.api.errors import ApiError
from ov_specdec.options.generation import GenerationOptions
from ov_specdec.server import reply
from ov_specdec.text.chat_template import ROLE_ELSE
from tests.support.agents import called, scripted
from tests.support.server import NAME, paused, serving

HELLO = [{"role": "user", "content": "Hello"}]
EDIT = {
    "name": "edit",
    "input_schema": {"type": "object", "properties": {"b": {"type": "string"}, "a": {}}},
}
ASKED = {"model": "claude-opus-4-8", "max_tokens": 60, "messages": HELLO, "tools": [EDIT]}
THOUGHT = "<think>\nHm.\n</think>\n\nI edit."
ANSWER = f"{THOUGHT}\n" + called("edit", b="1", a="2")
TEXT, CALL = ({"type": "text", "text": "a"}, {"type": "tool_use", "id": "i", "name": "f"})
BLOCK = "messages[0].content[0]"
RESULT = {"type": "tool_result", "tool_use_id": "i"}


def messages(*turns, strict=True, **fields):
    told = [{"role": role, "content": content} for role, content in turns or [("user", "Hello")]]
    body = {"max_tokens": 5, "messages": told, **fields}
    return read(MessagesBody, body, UnknownFields(strict=strict))


def holding(block, role="user"):
    """Fields whose only message holds one block."""
    return {"messages": [{"role": role, "content": [block]}]}


@pytest.mark.parametrize(
    ("turn", "read_as"),
    [
        (("user", "a"), [{"role": "user", "content": "a"}]),
        (("user", [TEXT]), [{"role": "user", "content": "a"}]),
        (
            ("user", [TEXT, {**TEXT, "cache_control": {}}]),
            [{"role": "user", "content": [TEXT] * 2}],
        ),
        (("ctx", "a"), [{"role": "system", "content": "a", ROLE_ELSE: "user"}]),
        (
            (
                "assistant",
                [
                    {"type": "thinking", "thinking": "b", "signature": "c"},
                    {"type": "redacted_thinking", "data": "d"},
                    TEXT,
                ],
            ),
            [{"role": "assistant", "content": "a", "reasoning": "b", "reasoning_content": "b"}],
        ),
    ],
)
def test_blocks_are_read_as_messages_of_templates(turn, read_as):
    [prompt] = messages(("user", "Hello"), turn, ("user", "b")).prompts
    assert prompt[1:-1] == read_as


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ({}, ""),
        ({"content": "a", "is_error": True}, "a"),
        ({"content": [TEXT, {"type": "tool_reference", "tool_name": "f"}]}, "a"),
    ],
)
def test_calls_and_results_are_read_in_their_order(content, text):
    order = {"z": 1, "a": {"y": 2, "b": 3}}
    turns = [("assistant", [{**CALL, "input": order}]), ("user", [{**RESULT, **content}, TEXT])]
    [[_, call, result, user]] = messages(("user", "Hello"), *turns).prompts
    called = {"type": "function", "function": {"name": "f", "arguments": order}, "id": "i"}
    assert json.dumps(call["tool_calls"]) == json.dumps([called])
    assert result == {"role": "tool", "tool_call_id": "i", "content": text}
    assert user == {"role": "user", "content": "a"}


BILLING = "x-anthropic-billing-header: cc_version=2; cch=1a2;"


@pytest.mark.parametrize(
    "text", ["You help.", f"{BILLING}\nYou help.", [{"type": "text", "text": "You help."}]]
)
def test_the_system_prompt_is_without_what_changes_with_each_request(text):
    billing = {"type": "text", "text": BILLING}
    system = text if isinstance(text, str) else [billing, *text]
    [prompt] = messages(system=system).prompts
    assert prompt == [{"role": "system", "content": "You help."}, *HELLO]
    assert messages(system=[billing]).prompts == (HELLO,)


@pytest.mark.parametrize(
    ("fields", "options"),
    [
        ({"stop_sequences": ["a"], "top_k": 3}, {"stop_strings": ["a"], "top_k": 3}),
        ({"temperature": 0.5, "top_p": 0.9}, {"temperature": 0.5, "top_p": 0.9}),
        (
            {"thinking": {"type": "enabled", "budget_tokens": 9}},
            {"thinking_token_budget": 9, "reasoning_effort": "auto"},
        ),
        ({"seed": 3, "min_p": 0.1}, {"seed": 3, "min_p": 0.1}),
        ({"thinking": {"type": "disabled"}}, {"reasoning_effort": "none"}),
        ({"thinking": {"type": "adaptive"}}, {}),
        ({"output_config": {"effort": "high"}}, {"reasoning_effort": "high"}),
        (
            {"output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}}},
            {"json_schema": {"type": "object"}},
        ),
        (
            {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
            {"parallel_tool_calls": False},
        ),
        ({"tool_choice": {"type": "any"}}, {"tool_choice": "required"}),
        ({"tool_choice": {"type": "none"}}, {"tool_choice": "none"}),
        ({"tool_choice": {"type": "tool", "name": "edit"}}, {"tool_choice": "edit"}),
        ({"cache_control": {"type": "ephemeral"}, "metadata": {"user_id": "a"}}, {}),
        ({"service_tier": "auto", "context_management": {"edits": []}, "container": "c"}, {}),
    ],
)
def test_fields_are_read_as_options(fields, options):
    tool = {**EDIT, "defer_loading": True, "input_examples": [{}], "cache_control": {}}
    function = {"name": "edit", "parameters": EDIT["input_schema"]}
    known = {"max_new_tokens": 5, "tools": [{"type": "function", "function": function}]}
    assert messages(tools=[tool], **fields).options == GenerationOptions(**known, **options)


@pytest.mark.parametrize(
    ("fields", "param", "named"),
    [
        (holding({"type": "image"}), f"{BLOCK}.type", "image"),
        (holding({"type": "document"}), f"{BLOCK}.type", "document"),
        (
            holding({**RESULT, "content": [{"type": "image"}]}),
            f"{BLOCK}.content[0].type",
            "image",
        ),
        (holding({**CALL, "input": {}}), f"{BLOCK}.type", "assistant"),
        (holding(RESULT), "messages[0]", "'i'"),
        (holding(CALL, "assistant"), f"{BLOCK}.input", "missing"),
        ({"tool_choice": {"type": "any"}}, "tool_choice", "tools"),
        (
            {"tools": [EDIT], "tool_choice": {"type": "tool", "name": "other"}},
            "tool_choice",
            "edit",
        ),
        ({"tools": [EDIT], "tool_choice": {"type": "tool"}}, "tool_choice.name", "missing"),
        ({"output_format": {}}, "output_format", "output_config.format"),
        ({"mcp_servers": [{}]}, "mcp_servers", "mcp_servers"),
        ({"stop_sequences": [""]}, "stop_sequences", "empty"),
        ({"max_tokens": 0}, "max_tokens", "0"),
        (
            {"tools": [{"type": "web_search_20260209", "name": "web_search"}]},
            "tools.web_search_20260209",
            "not supported",
        ),
        ({"thinking": {"type": "enabled", "level": 3}}, "thinking.level", "not supported"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(fields, param, named):
    with pytest.raises(ApiError) as error:
        messages(**fields)
    assert (error.value.status, error.value.param) == (400, param)
    assert named in error.value.message


def test_an_answer_that_has_begun_is_continued():
    assert messages(("user", "Hello"), ("assistant", "Good")).options.continue_final_message
    assert not messages().options.continue_final_message


def test_counts_have_the_fields_of_messages():
    assert set(MessagesBody.model_fields) - set(CountBody.model_fields) == {"stream", "max_tokens"}


@pytest.fixture(scope="module")
def pipeline(agent_model):
    with SpeculativePipeline(agent_model, drafter="suffix", num_threads=1) as made:
        made.check_batch_invariant()
        yield made


@pytest.fixture(scope="module")
def client(server):
    """Anthropic's own client, which refuses what is not as it declares it."""
    return anthropic.Anthropic(
        base_url=server.url, api_key="none", max_retries=0, _strict_response_validation=True
    )


def events_of(server, path="/v1/messages?beta=true", **fields):
    answer = server.post(path, **{**ASKED, "stream": True, **fields})
    lines = [event.split("\n") for event in answer.text.strip().split("\n\n")]
    events = [json.loads(data.removeprefix("data: ")) for _, data in lines]
    assert [name for name, _ in lines] == [f"event: {event['type']}" for event in events]
    return events


def test_its_client_gets_blocks_whole_and_streamed(client, pipeline):
    headers = {"anthropic-version": "1999-01-01", "anthropic-beta": "any-2026"}
    with scripted(pipeline, lambda _: ANSWER):
        whole = client.messages.create(**ASKED, extra_headers=headers)
        with client.beta.messages.stream(**ASKED) as stream:
            for _ in stream:
                pass
            streamed = stream.get_final_message()
    for answer in (whole, streamed):
        thinking, text, call = answer.content
        assert (thinking.thinking, text.text, thinking.signature) == ("Hm.", "I edit.", "unsigned")
        assert (call.name, [*call.input.items()]) == ("edit", [("b", "1"), ("a", "2")])
        assert (answer.model, answer.stop_reason) == (NAME, "tool_use")
    assert whole.usage.output_tokens == streamed.usage.output_tokens > 10
    counted = client.messages.count_tokens(**{k: v for k, v in ASKED.items() if k != "max_tokens"})
    for usage in (whole.usage, streamed.usage):
        assert usage.input_tokens + usage.cache_read_input_tokens == counted.input_tokens
    assert streamed.usage.cache_read_input_tokens >= counted.input_tokens - 2


@pytest.mark.parametrize("length", [1, 3, 8, 12, 20, 60])
def test_events_are_blocks_one_after_the_other_each_closed(server, pipeline, length):
    with scripted(pipeline, lambda _: ANSWER):
        first, *events, ending, last = events_of(server, max_tokens=length)
    assert (first["type"], ending["type"], last["type"]) == (
        *("message_start", "message_delta", "message_stop"),
    )
    assert first["message"]["stop_reason"] is None
    begun, ended = first["message"]["usage"], ending["usage"]
    names = ("input_tokens", "cache_read_input_tokens")
    assert sum(map(begun.get, names)) == sum(map(ended.get, names)) > 50
    place, is_open, kinds = -1, False, []
    for event in events:
        if event["type"] == "content_block_start":
            assert not is_open
            place, is_open = place + 1, True
            kinds.append(event["content_block"]["type"])
        else:
            assert is_open
            is_open = event["type"] != "content_block_stop"
        assert event["index"] == place
    assert not is_open
    assert kinds == ["thinking", "text", "tool_use"][: len(kinds)]
    signed = [each for each in events if each.get("delta", {}).get("type") == "signature_delta"]
    assert len(signed) == kinds.count("thinking")
    assert ending["delta"]["stop_reason"] == ("tool_use" if length == 60 else "max_tokens")


def test_the_reason_of_an_end_is_told(client, pipeline):
    def asked(**fields):
        return client.messages.create(**{**ASKED, **fields})

    with scripted(pipeline, lambda _: THOUGHT):
        assert asked().stop_reason == "end_turn"
        stopped = asked(stop_sequences=["dit"])
        assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", "dit")
        assert stopped.content[-1].text == "I e"
    with scripted(pipeline, lambda _: ANSWER):
        cut = asked(max_tokens=len(pipeline.tokenizer.encode(ANSWER)) - 8)
    assert cut.stop_reason == "max_tokens"
    assert cut.content[-1].type == "tool_use"


def blocks_of(events):
    """The blocks that a client makes of events."""
    blocks = []
    for event in events:
        if event["type"] == "content_block_start":
            blocks.append(dict(event["content_block"], pieces=""))
        elif event["type"] == "content_block_delta":
            names = ("text", "thinking", "partial_json")
            blocks[-1]["pieces"] += "".join(event["delta"].get(name, "") for name in names)
    return blocks


def parts_of(blocks):
    """Reasoning, text, and calls."""

    def text(kind):
        return "".join(b.get("pieces", b.get(kind)) for b in blocks if b["type"] == kind)

    calls = [
        (b["name"], json.loads(b["pieces"]) if "pieces" in b else b["input"])
        for b in blocks
        if b["type"] == "tool_use"
    ]
    return text("thinking"), text("text"), calls


@pytest.mark.parametrize("script", [None, lambda _: ANSWER], ids=["free", "with calls"])
def test_the_text_is_that_of_the_other_interfaces(server, pipeline, script):
    function = {"name": "edit", "parameters": EDIT["input_schema"]}
    fields = {"model": NAME, "temperature": 0, "tools": [{"type": "function", **function}]}
    with scripted(pipeline, script) if script else nullcontext():
        asked = {**fields, "tools": [{"type": "function", "function": function}]}
        chat = server.post("/v1/chat/completions", **asked, messages=HELLO, max_tokens=60)
        items = server.post("/v1/responses", **fields, input=HELLO, max_output_tokens=60)
        whole = server.post("/v1/messages", **{**ASKED, "temperature": 0}).json()["content"]
        streamed = blocks_of(events_of(server, temperature=0))
    chat = chat.json()["choices"][0]["message"]
    called = [call["function"] for call in chat.get("tool_calls", ())]
    calls = [(call["name"], json.loads(call["arguments"])) for call in called]
    own = (chat.get("reasoning_content", ""), chat["content"] or "", calls)
    assert parts_of(whole) == parts_of(streamed) == own
    assert len(own[2]) == (script is not None)
    kinds = {"reasoning": "thinking", "message": "text", "function_call": "tool_use"}
    as_blocks = [
        {
            **item,
            "type": kinds[item["type"]],
            "pieces": item.get("arguments") or item["content"][0]["text"],
        }
        for item in items.json()["output"]
    ]
    assert parts_of(as_blocks) == own


def test_errors_are_in_its_form_also_in_streams(server, pipeline, client, monkeypatch):
    for path in ("", "/count_tokens"):
        refused = server.post(f"/v1/messages{path}", model="other", messages=HELLO, max_tokens=1)
        told = {"type": "not_found_error", "message": refused.json()["error"]["message"]}
        assert (refused.status_code, refused.json()) == (404, {"type": "error", "error": told})
    with pytest.raises(anthropic.BadRequestError, match=r"prompt is too long: \d+ tokens > 65536 "):
        client.messages.create(**{**ASKED, **holding({**TEXT, "text": "a b" * 40_000})})
    with pytest.raises(anthropic.BadRequestError, match="long: over 65536 tokens > 65536 maximum"):
        client.messages.create(**{**ASKED, **holding({**TEXT, "text": "x" * 3_000_000})})

    def fail(*_):
        raise RuntimeError

    with monkeypatch.context() as patch:
        patch.setattr(type(pipeline.main.runner), "forward", fail)
        *_, last = events_of(server)
    assert last["type"] == "error"
    assert last["error"]["type"] == "api_error"


def test_it_pings_while_a_long_prompt_is_read(server, pipeline, monkeypatch):
    monkeypatch.setattr(reply, "PING_SECONDS", 0.05)
    with (
        paused(pipeline, monkeypatch) as goes_on,
        server.http.stream("POST", "/v1/messages", json={**ASKED, "stream": True}) as answer,
    ):
        pieces = answer.iter_text()
        assert next(pieces) == 'event: ping\ndata: {"type":"ping"}\n\n'
        goes_on.set()
        assert "event: message_start" in "".join(pieces)


def test_keys_come_in_either_header(pipeline):
    with serving(pipeline, api_keys=("secret",)) as server:
        for given in ({"api_key": "secret"}, {"auth_token": "secret"}):
            own = anthropic.Anthropic(base_url=server.url, **given)
            assert own.messages.count_tokens(model="claude-x", messages=HELLO).input_tokens > 1
        by_key = {"headers": {"x-api-key": "secret"}}  # from clients of other versions
        assert server.http.get("/v1/models", **by_key).json()["data"][0]["id"] == NAME
        refused = server.post("/v1/messages", **ASKED)
        assert (refused.status_code, refused.json()["type"]) == (401, "error")
        assert refused.json()["error"]["type"] == "authentication_error"
