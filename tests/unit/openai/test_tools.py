"""Tools, calls and reasoning in requests and answers, without a model and without sockets."""

import json

import pytest
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter

from ov_specdec.api.body import UnknownFields, read
from ov_specdec.api.errors import ApiError
from ov_specdec.openai.requests import ResponsesBody
from ov_specdec.openai.responses import InputReader
from ov_specdec.results.chunks import Chunk
from ov_specdec.results.parts import Arguments, CallBegin, CallEnd, Reasoning, Text
from ov_specdec.results.stats import GenerationStats
from tests.support.bodies import MESSAGES, answer, chat, data_of, refused, responses

AREA = {
    "name": "area",
    "description": "Of a rectangle.",
    "parameters": {"type": "object", "properties": {"width": {"type": "number"}}},
}
FUNCTION = {"type": "function", "function": AREA}
OTHER = {"type": "function", "function": {"name": "other"}}
FLAT = {"type": "function", **AREA, "strict": False}
GRAMMAR = {"syntax": "lark", "definition": 'start: "*** Begin Patch"'}
PATCH = {"type": "custom", "name": "apply_patch", "format": {"type": "grammar", **GRAMMAR}}
MCP = {"type": "namespace", "name": "mcp__maps__", "description": "Maps.", "tools": [FLAT, PATCH]}


def test_tools_of_a_chat_are_options():
    null = {**FUNCTION, "function": {**AREA, "strict": None}}
    ask = chat(tools=[null, OTHER], parallel_tool_calls=False, thinking_token_budget=5)
    assert ask.options.tools == (FUNCTION, OTHER)
    assert ask.options.parallel_tool_calls is False
    assert (ask.options.tool_choice, ask.options.thinking_token_budget) == ("auto", 5)


NAMED = {"type": "function", "function": {"name": "other"}}
NAMED_FLAT = {"type": "function", "name": "other"}


@pytest.mark.parametrize("choice", ["auto", "none", "required", NAMED, NAMED_FLAT])
def test_a_choice_is_an_option(choice):
    of_chat = chat(tools=[FUNCTION, OTHER], tool_choice=choice)
    of_response = responses(tools=[FLAT, NAMED_FLAT], tool_choice=choice)
    chosen = choice if isinstance(choice, str) else "other"
    assert of_chat.options.tool_choice == of_response.options.tool_choice == chosen
    assert of_response.settings["tool_choice"] == choice


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tools": [{"type": "custom", "custom": {"name": "x"}}]}, "tools[0].type"),
        ({"tools": [{"type": "function", "function": {"name": 'a"b'}}]}, "tools"),
        ({"tools": [FUNCTION], "tool_choice": NAMED}, "tool_choice"),
        ({"tools": [FUNCTION], "tool_choice": {"type": "function"}}, "tool_choice"),
        ({"tools": [FUNCTION], "tool_choice": {"type": "allowed_tools"}}, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [FUNCTION], "ignore_eos": True}, "tools"),
        ({"functions": [AREA]}, "functions"),
        ({"function_call": {"name": "area"}}, "function_call"),
    ],
)
def test_what_cannot_be_called_is_refused_by_name(fields, param):
    error = refused(chat, **fields)
    assert error.param == param


@pytest.mark.parametrize(
    ("tool", "param"),
    [
        ({"type": "function"}, "tools"),
        (
            {"type": "namespace", "name": "a", "tools": [{"type": "function", "name": 'x"'}]},
            "tools",
        ),
        ({**PATCH, "format": {"type": "grammar", "syntax": "ebnf"}}, "tools[0].format.syntax"),
        ({"name": "area"}, "tools[0].type"),
    ],
)
def test_tools_of_responses_are_refused_by_name(tool, param):
    assert refused(responses, tools=[tool]).param == param


def test_reasoning_effort_is_that_of_either_endpoint():
    assert chat(reasoning_effort="low").options.reasoning_effort == "low"
    asked = responses(reasoning={"effort": "none", "summary": "auto"})
    assert asked.options.reasoning_effort == "none"
    assert asked.settings["reasoning"] == {"effort": "none", "summary": "auto"}
    assert responses().settings["reasoning"] == {"effort": None, "summary": None}


def test_tools_that_only_openai_runs_are_left_out_with_a_warning_each(caplog):
    hosted = [{"type": "web_search", "external_web_access": False}, {"type": "image_generation"}]
    body, unknown = {"input": "x", "tools": [*hosted, FLAT]}, UnknownFields()
    for _ in range(2):
        ask = read(ResponsesBody, body, unknown)
        assert [tool["function"]["name"] for tool in ask.options.tools] == ["area"]
        assert ask.settings["tools"] == [FLAT]
    assert [record.getMessage() for record in caplog.records] == [
        f"'tools.{name}' is ignored in requests: it is not a known field"
        for name in ("web_search", "image_generation")
    ]


def test_templates_get_the_same_of_either_endpoint():
    flat = {"type": "function", **AREA}
    [of_chat] = chat(tools=[FUNCTION]).options.tools
    own, nested = responses(tools=[flat, {**MCP, "tools": [flat]}]).options.tools
    assert json.dumps(own) == json.dumps(of_chat)
    assert json.dumps(nested) == json.dumps(of_chat).replace("area", "mcp__maps__area", 1)


def test_namespaces_are_flat_for_the_model():
    ask = responses(tools=[MCP, PATCH])
    names = [tool[tool["type"]]["name"] for tool in ask.options.tools]
    assert names == ["mcp__maps__area", "mcp__maps__apply_patch", "apply_patch"]
    custom = {"name": "apply_patch", "format": {"grammar": GRAMMAR}}
    assert ask.options.tools[-1] == {"type": "custom", "custom": custom}
    assert ask.settings["tools"] == [MCP, PATCH]
    chosen = {"type": "function", "name": "area", "namespace": "mcp__maps__"}
    named = responses(tools=[MCP], tool_choice=chosen).options.tool_choice
    assert named == "mcp__maps__area"


CALL = {"id": "a1", "type": "function", "function": {"name": "area", "arguments": '{"width": 2}'}}
CALLED = {**CALL, "function": {"name": "area", "arguments": {"width": 2}}}


def test_messages_bring_calls_and_reasoning():
    for name in ("reasoning", "reasoning_content"):
        given = [
            {"role": "user", "content": "x"},
            {"role": "assistant", "content": None, "tool_calls": [CALL], name: "Hm"},
            {"role": "tool", "tool_call_id": "a1", "content": "4"},
        ]
        [messages] = chat(messages=given).prompts
        assert messages == [
            given[0],
            {
                "role": "assistant",
                "content": "",
                "reasoning": "Hm",
                "reasoning_content": "Hm",
                "tool_calls": [CALLED],
            },
            given[2],
        ]


def turn_of(calls, results):
    """A turn of both endpoints, by the ids of its calls and of their results."""
    made = [{**CALL, "id": call} for call in calls]
    told = [{"role": "tool", "tool_call_id": call, "content": call.upper()} for call in results]
    items = [{"type": "function_call", "call_id": call, **CALL["function"]} for call in calls]
    outputs = [
        {"type": "function_call_output", "call_id": call, "output": call.upper()}
        for call in results
    ]
    return [{"role": "assistant", "tool_calls": made}, *told], [*items, *outputs]


def test_results_have_the_order_of_their_calls():
    turns = [turn_of("abc", "cab"), turn_of("ba", "ab"), turn_of("d", "d")]
    of_chat, of_responses = (
        [each for turn in own for each in turn] for own in zip(*turns, strict=True)
    )
    for ask in (chat(messages=of_chat), responses(input=of_responses)):
        [messages] = ask.prompts
        results = [each.get("tool_call_id", "|") for each in messages]
        assert "".join(results) == "|abc|ba|d"
        assert all(each["content"] == each.get("tool_call_id", "").upper() for each in messages)


def test_a_result_without_its_call_is_refused_by_path():
    messages, items = turn_of("ab", "bx")
    later = {"role": "tool", "tool_call_id": "a", "content": "A"}
    for given, ask, param in (
        ({"messages": messages}, chat, "messages[2]"),
        ({"messages": [later, *messages[:1]]}, chat, "messages[0]"),
        ({"input": items}, responses, "input[3]"),
    ):
        error = refused(ask, **given)
        assert error.param == param
        assert "a call that no message before it has: give the id of one" in error.message


def called_with(arguments):
    call = {**CALL, "function": {"name": "area", "arguments": arguments}}
    return [*MESSAGES, {"role": "assistant", "tool_calls": [CALL, call]}]


@pytest.mark.parametrize(
    "arguments", ['{"a": ', "[1]", "3", '{"a": NaN}', '{"a": "\\ud800"}', "[" * 9999, 3, None]
)
def test_arguments_that_are_no_object_are_refused_by_path(arguments):
    error = refused(chat, messages=called_with(arguments))
    assert error.param == "messages[1].tool_calls[1].function.arguments"
    item = {"type": "function_call", "call_id": "a", "name": "area", "arguments": arguments}
    assert refused(responses, input=[item]).param == "input[0].arguments"


def test_arguments_may_be_missing_or_a_mapping():
    for arguments, found in (("", {}), ({"a": [1]}, {"a": [1]}), ('{"b": {}}', {"b": {}})):
        [messages] = chat(messages=called_with(arguments)).prompts
        assert messages[1]["tool_calls"][1]["function"]["arguments"] == found


def test_arguments_count_towards_the_values_of_a_body():
    many = json.dumps({"a": [0] * 140_000})
    assert "more than 131072 values" in refused(chat, messages=called_with(many)).message
    given = [{"type": "function_call", "call_id": "a", "name": "b", "arguments": '{"c": 1}'}]
    assert len(responses(input=given * 20_000).prompts[0][0]["tool_calls"]) == 20_000
    deep = '{"a": ' + "[" * 120 + "]" * 120 + "}"
    assert "nested more than 100" in refused(chat, messages=called_with(deep)).message


ITEMS = [
    {"role": "user", "content": "x"},
    {"type": "reasoning", "id": "rs_1", "summary": [], "content": None,
     "encrypted_content": "plain:Hm"},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "So"}]},
    {"type": "function_call", "call_id": "a1", "name": "area", "namespace": "mcp__maps__",
     "arguments": '{"width": 2}'},
    {"type": "custom_tool_call", "call_id": "a2", "name": "apply_patch", "input": "*** \"x\"\n"},
    {"type": "function_call_output", "call_id": "a1", "output": "4"},
    {"type": "custom_tool_call_output", "call_id": "a2",
     "output": [{"type": "input_text", "text": "done"}]},
    {"type": "reasoning", "id": "rs_2", "summary": [],
     "content": [{"type": "reasoning_text", "text": "Aha"}]},
    {"type": "reasoning", "id": "rs_3", "summary": [], "encrypted_content": "gAAAA"},
    {"type": "message", "role": "assistant", "content": "4"},
    {"type": "message", "role": "assistant", "content": "5"},
]  # fmt: skip


def test_items_of_one_turn_are_one_message():
    function = {"name": "mcp__maps__area", "arguments": {"width": 2}}
    custom = {"name": "apply_patch", "arguments": {"input": '*** "x"\n'}}
    calls = [
        {"id": id_, "type": "function", "function": each}
        for id_, each in (("a1", function), ("a2", custom))
    ]

    def part(text):
        return [{"type": "text", "text": text}]

    def thought(text):
        return {"role": "assistant", "reasoning": text, "reasoning_content": text}

    [messages] = responses(input=ITEMS).prompts
    assert messages == [
        {"role": "user", "content": "x"},
        {**thought("Hm"), "content": part("So"), "tool_calls": calls},
        {"role": "tool", "tool_call_id": "a1", "content": "4"},
        {"role": "tool", "tool_call_id": "a2", "content": part("done")},
        {**thought("Aha"), "content": "4"},
        {"role": "assistant", "content": "5"},
    ]


def test_reasoning_that_cannot_be_read_is_no_message():
    sealed = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAA"}
    message, call = ITEMS[2], ITEMS[4]
    [messages] = responses(input=[message, sealed, call, sealed, ITEMS[0]]).prompts
    assert [each["role"] for each in messages] == ["assistant", "user"]
    assert len(messages[0]["tool_calls"]) == 1


@pytest.mark.parametrize("item", [each for each in ITEMS if "type" in each])
def test_an_item_without_what_it_needs_is_refused_by_path(item):
    optional = {"type", "id", "summary", "content", "encrypted_content", "namespace"}
    for name in item.keys() - optional:
        rest = {key: value for key, value in item.items() if key != name}
        assert refused(responses, input=[rest]).param == f"input[0].{name}"


PARTS = [
    (Reasoning("H"),),
    (Reasoning("m"),),
    (Text("S"),),
    (Text("o"), CallBegin("area", "m1"), Arguments('{"wid')),
    (Arguments('th": 2'), Arguments("}"), CallEnd()),
    (CallBegin("apply_patch"), Arguments('{"input": "a\\')),
    (Arguments("n\\ud83d"), Arguments('\\ude00"'), Arguments("}"), CallEnd()),
]
STATS = GenerationStats(5, [])


def chunks(parts=PARTS, finish_reason="tool_calls"):
    texts = ["".join(part.text for part in each if isinstance(part, Text)) for each in parts]
    made = [Chunk(text, [1], "plain", parts=each) for text, each in zip(texts, parts, strict=True)]
    return [*made, Chunk("", [2], "plain", finish_reason=finish_reason, stats=STATS)]


def streamed(ask, given=None, index=0):
    stream = answer(ask)
    found = [*stream.begin()]
    for chunk in chunks() if given is None else given:
        found += stream.add(index, chunk)
    events = [event.decode().strip() for event in [*found, *stream.end()]]
    return [data_of(event) for event in events if not event.endswith("[DONE]")]


def whole(ask, given=None):
    stream = answer(ask)
    for chunk in chunks() if given is None else given:
        stream.note(0, chunk)
    return json.loads(json.dumps(stream.whole()))


def test_deltas_of_a_chat_begin_with_the_name_and_join_to_the_arguments():
    choices = [event["choices"][0] for event in streamed(chat(stream=True, tools=[FUNCTION]))]
    deltas = [choice["delta"] for choice in choices]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == "Hm"
    assert "".join(delta.get("content", "") for delta in deltas) == "So"
    calls = [call for delta in deltas for call in delta.get("tool_calls", ())]
    begun = [call for call in calls if "id" in call]
    function = {"name": "area", "arguments": ""}
    assert begun[0] == {"index": 0, "id": "m1", "type": "function", "function": function}
    assert all(len(delta) == 1 for delta in deltas[1:-1]) and deltas[-1] == {}
    assert all(len(delta.get("tool_calls", ())) < 2 for delta in deltas)
    assert (begun[1]["index"], len(begun[1]["id"]), begun[1]["id"].isalnum()) == (1, 9, True)
    for index, arguments in enumerate(({"width": 2}, {"input": "a\n\U0001f600"})):
        own = [call for call in calls if call["index"] == index]
        assert all(call.keys() == {"index", "function"} for call in own[1:])
        assert json.loads("".join(call["function"]["arguments"] for call in own)) == arguments
    reasons = [choice["finish_reason"] for choice in choices]
    assert reasons == [None] * (len(reasons) - 1) + ["tool_calls"]


def test_each_choice_counts_its_own_calls():
    stream = answer(chat(stream=True, tools=[FUNCTION], n=2))
    for index in (0, 1):
        events = [event for chunk in chunks() for event in stream.add(index, chunk)]
        deltas = [data_of(event.decode().strip())["choices"][0]["delta"] for event in events]
        calls = [call for delta in deltas for call in delta.get("tool_calls", ())]
        assert {call["index"] for call in calls} == {0, 1}


def test_a_call_that_is_cut_is_in_a_whole_chat_as_in_a_stream():
    cut = chunks([(CallBegin("area", "m1"), Arguments('{"wi'))], "length")
    choice = whole(chat(tools=[FUNCTION]), cut)["choices"][0]
    assert choice["finish_reason"] == "length"
    function = {"name": "area", "arguments": '{"wi'}
    assert choice["message"]["tool_calls"] == [
        {"id": "m1", "type": "function", "function": function}
    ]
    assert choice["message"]["content"] is None
    deltas = [e["choices"][0]["delta"] for e in streamed(chat(stream=True, tools=[FUNCTION]), cut)]
    given = [call["function"] for delta in deltas for call in delta.get("tool_calls", ())]
    assert given == [{"name": "area", "arguments": ""}, {"arguments": '{"wi'}]


TOOLS = [{"type": "function", "name": "area"}, {"type": "custom", "name": "apply_patch"}]
NAMES = [
    "response.created",
    "response.in_progress",
    *("response.output_item.added", "response.content_part.added"),
    *["response.reasoning_text.delta"] * 2,
    *("response.reasoning_text.done", "response.content_part.done", "response.output_item.done"),
    *("response.output_item.added", "response.content_part.added"),
    *["response.output_text.delta"] * 2,
    *("response.output_text.done", "response.content_part.done", "response.output_item.done"),
    "response.output_item.added",
    *["response.function_call_arguments.delta"] * 2,
    *("response.function_call_arguments.done", "response.output_item.done"),
    "response.output_item.added",
    *["response.custom_tool_call_input.delta"] * 2,
    *("response.custom_tool_call_input.done", "response.output_item.done"),
    "response.completed",
]


def test_the_events_of_items_are_openais():
    events = streamed(responses(stream=True, tools=TOOLS, include=["reasoning.encrypted_content"]))
    assert [event["type"] for event in events] == NAMES
    assert [event["sequence_number"] for event in events] == [*range(len(NAMES))]
    of_items = [event for event in events if "output_index" in event]
    output = events[-1]["response"]["output"]
    assert [item["type"] for item in output] == [
        *("reasoning", "message", "function_call", "custom_tool_call")
    ]
    for index, item in enumerate(output):
        own = [event for event in of_items if event["output_index"] == index]
        assert {e["item_id"] if "item_id" in e else e["item"]["id"] for e in own} == {item["id"]}
        assert own[0]["item"]["status"] == "in_progress"
        assert own[-1]["item"] == item
        assert item["status"] == "completed"
        text = "".join(event.get("delta", "") for event in own)
        fields = {"function_call": "arguments", "custom_tool_call": "input"}
        field = fields.get(item["type"], "text")
        [done] = [event for event in own if field in event]
        assert done[field] == text == (item if field in item else item["content"][0])[field]
    assert output[0]["encrypted_content"] == "plain:Hm"
    assert output[2]["call_id"] == "m1"
    assert output[3]["input"] == "a\n\U0001f600"


def test_a_failed_stream_ends_with_the_response_that_failed():
    stream = answer(responses(stream=True, tools=TOOLS))
    events = [*stream.begin()]
    for chunk in chunks()[:5]:
        events += stream.add(0, chunk)
    *_, told, last = (stream.fail(ApiError(503, "no", code="draining"))).decode().split("\n\n")[:-1]
    assert (data_of(told)["type"], data_of(told)["code"]) == ("error", "draining")
    event = TypeAdapter(ResponseStreamEvent).validate_python(data_of(last))
    assert (event.type, event.sequence_number) == ("response.failed", len(events) + 1)
    assert (event.response.status, event.response.error.message) == ("failed", "no")
    assert [item.type for item in event.response.output] == [
        "reasoning",
        "message",
        "function_call",
    ]


SPELLED = ['a "\\\n\t/\x7f\u2028\U0001f600é', "", "\\", '"}', "\ud83d"]


@pytest.mark.parametrize("text", SPELLED)
@pytest.mark.parametrize("is_ascii", [True, False])
@pytest.mark.parametrize("separator", [": ", ":", " :\n"])
def test_the_input_of_a_custom_tool_is_read_however_it_is_cut(text, is_ascii, separator):
    arguments = json.dumps({"input": text}, ensure_ascii=is_ascii, separators=(",", separator))
    for size in (1, 2, 3, 5, 100):
        reader = InputReader()
        pieces = [arguments[i : i + size] for i in range(0, len(arguments), size)]
        given = "".join(reader.push(piece) for piece in pieces)
        assert given == ("" if text == "\ud83d" else text)


def test_what_is_cut_is_incomplete():
    for part in (CallBegin("area"), Reasoning("Hm"), Text("So")):
        cut = [(Text("a"), part, *[Arguments('{"wi')] * isinstance(part, CallBegin))]
        told = whole(responses(tools=TOOLS), chunks(cut, "length"))
        assert told["status"] == told["output"][-1]["status"] == "incomplete"
        assert streamed(responses(stream=True, tools=TOOLS), chunks(cut, "length"))[-1]["type"] == (
            "response.incomplete"
        )
    stopped = [(CallBegin("area"), Arguments('{"wi'))]  # by a stop string
    told = whole(responses(tools=TOOLS), chunks(stopped, "stop"))
    assert (told["status"], told["output"][0]["status"]) == ("completed", "incomplete")


def test_a_response_without_any_text_has_an_empty_message():
    [item] = whole(responses(), chunks([], "stop"))["output"]
    assert (item["type"], item["content"][0]["text"]) == ("message", "")
    names = [event["type"] for event in streamed(responses(stream=True), chunks([], "stop"))]
    assert names[2:6] == [
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.done",
        "response.content_part.done",
    ]
