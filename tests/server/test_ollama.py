"""Ollama's interface: by its own client, and what its clients ask besides."""

import json
import re

import ollama
import pytest

from ov_specdec import SpeculativePipeline
from ov_specdec.api.body import UnknownFields, read
from ov_specdec.api.errors import ApiError
from ov_specdec.ollama.requests import ChatRequest, GenerateRequest
from tests.support.agents import called, scripted
from tests.support.server import NAME, paused, serving

MESSAGES = [{"role": "user", "content": "return width"}]
GREEDY = {"temperature": 0, "num_predict": 8}
STRICT = UnknownFields(strict=True)


@pytest.fixture(scope="module")
def client(server):
    return ollama.Client(server.url)


def test_the_official_client_finds_the_model(client, server):
    for path in ("/", "/api/version"):
        assert server.http.get(path).status_code == server.http.head(path).status_code == 200
    version = [*map(int, server.http.get("/api/version").json()["version"].split("."))]
    assert version >= [0, 6, 4], "VS Code refuses earlier ones"
    [model] = client.list().models
    [loaded] = client.ps().models
    assert model.model == loaded.model == NAME
    assert loaded.context_length == server.service.model.max_length
    shown = client.show(f"{NAME}:latest")
    family = shown.modelinfo["general.architecture"]
    assert shown.modelinfo[f"{family}.context_length"] == loaded.context_length
    assert shown.capabilities == ["completion"]
    assert shown.template == server.service.model.tokenizer.chat_template


def test_its_chats_are_those_of_openais_interface(client, server):
    body = {"messages": MESSAGES, "temperature": 0, "max_tokens": 8}
    same = server.post("/v1/chat/completions", **body).json()
    [choice], usage = same["choices"], same["usage"]
    text = choice["message"]["content"]
    asked = {"model": NAME, "options": GREEDY}
    whole = client.chat(**asked, messages=MESSAGES)
    *pieces, last = client.chat(**asked, messages=MESSAGES, stream=True)
    assert whole.message.content == "".join(each.message.content for each in pieces) == text
    assert not any(each.done for each in pieces)
    generated = client.generate(**asked, prompt="return width", keep_alive="5m")
    *others, end = client.generate(**asked, prompt="return width", stream=True)
    assert generated.response == "".join(each.response for each in others) == text
    for each in (whole, last, generated, end):
        assert (each.done, each.done_reason) == (True, "length")
        tokens = each.prompt_eval_count, each.eval_count
        assert tokens == (usage["prompt_tokens"], usage["completion_tokens"])
        assert each.prompt_eval_duration > 0 < each.eval_duration
        assert each.total_duration >= each.prompt_eval_duration + each.eval_duration


def test_it_continues_a_raw_prompt_and_stops(client, server):
    text = server.complete("def f(", max_tokens=8)["choices"][0]["text"]
    options = {**GREEDY, "stop": [text[-1]], "num_ctx": 64, "repeat_last_n": -1}
    raw = client.generate(NAME, "def f(", raw=True, think=False, options=GREEDY)
    assert raw.response == text
    short = client.generate(NAME, "def f(", raw=True, options=options)
    assert (short.response, short.done_reason) == (text[: text.index(text[-1])], "stop")


def test_it_answers_in_the_format_that_is_asked_for(client):
    schema = {"enum": ["left", "right"]}
    answer = client.generate(NAME, "x", format=schema, options={"temperature": 0})
    assert json.loads(answer.response) in schema["enum"]
    [*lines] = client.chat(NAME, MESSAGES, format="json", options=GREEDY, stream=True)
    assert lines[0].message.content.startswith("{")


def test_without_a_prompt_it_says_that_the_model_is_there(client, server):
    for answer in (client.chat(NAME), client.generate(NAME)):
        assert (answer.done, answer.done_reason, answer.eval_count) == (True, "load", None)
    [line] = client.generate(NAME, "", stream=True, keep_alive=0)
    assert line.done_reason == "unload"
    server.wait()
    assert server.service.slots.taken.total() == 0


def test_what_cannot_be_done_is_told_to_the_official_client(client):
    for ask in (client.pull, client.push, client.delete, client.embeddings):
        with pytest.raises(ollama.ResponseError, match="chosen at the start"):
            ask(NAME)
    for ask in (client.show, client.chat, client.generate):
        with pytest.raises(ollama.ResponseError, match=f"it is '{NAME}'") as error:
            ask("another")
        assert error.value.status_code == 404
    with pytest.raises(ollama.ResponseError, match="maximum context length"):
        list(client.generate(NAME, "x " * 1000, stream=True))


def test_an_error_in_a_stream_is_a_line(client, server, pipeline, monkeypatch):
    with paused(pipeline, monkeypatch, after=2):
        answer = client.generate(NAME, "def f(", options={"temperature": 0}, stream=True)
        assert not next(answer).done
        for stream in [*server.service.streams]:
            stream._loop.call_soon_threadsafe(stream.fail, ApiError(503, "it is over"))
        with pytest.raises(ollama.ResponseError, match="it is over"):
            list(answer)


@pytest.mark.parametrize("served", ["a", "a:latest"])
def test_names_have_a_tag_or_none(pipeline, served):
    with serving(pipeline, served_model_name=served) as server:
        for path in ("/api/chat", "/v1/chat/completions"):
            found = [
                server.post(path, model=name, messages=MESSAGES, max_tokens=1).status_code
                for name in ("a", "a:latest", "a:8b", "latest")
            ]
            assert found == [200, 200, 404, 404]
        assert [each["name"] for each in server.http.get("/api/tags").json()["models"]] == [served]


@pytest.mark.parametrize(
    ("options", "read_as"),
    [
        ({"num_predict": 5}, {"max_new_tokens": 5}),
        ({"num_predict": -1}, {"max_new_tokens": None}),
        ({"num_predict": 0}, {"max_new_tokens": None}),
        ({"seed": 0}, {"seed": 0}),
        ({"seed": -1}, {"seed": None}),
        ({"temperature": 1, "top_k": 40, "top_p": 0.9}, {"top_k": 40, "top_p": 0.9}),
        ({"min_p": 0.1, "typical_p": 0.7}, {"min_p": 0.1, "typical_p": 0.7}),
        ({"stop": ["a", "b"]}, {"stop_strings": ("a", "b")}),
        ({"repeat_penalty": 1.1}, {"repetition_penalty": 1.1}),
        ({"presence_penalty": 1.5}, {"presence_penalty": 1.5}),
        ({"frequency_penalty": 1.0}, {"frequency_penalty": 1.0}),
        (
            {"num_ctx": 8192, "num_gpu": 1, "use_mmap": True, "numa": False, "mirostat_tau": 0.8},
            {"temperature": None},
        ),
        ({"mirostat": 0, "tfs_z": 1.0, "penalize_newline": True, "repeat_last_n": -1}, {}),
    ],
)
def test_its_options_have_their_meaning(options, read_as):
    body = read(GenerateRequest, {"prompt": "x", "options": options}, STRICT)
    assert {name: getattr(body.options, name) for name in read_as} == read_as


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"options": {"mirostat": 1}}, "options.mirostat"),
        ({"options": {"tfs_z": 0.5}}, "options.tfs_z"),
        ({"options": {"repeat_last_n": 64}}, "options.repeat_last_n"),
        ({"options": {"penalize_newline": False}}, "options.penalize_newline"),
        ({"options": {"temperature": -1}}, "options.temperature"),
        ({"options": {"num_predict": "5"}}, "options.num_predict"),
        ({"options": {"num_predict": -3}}, "options.num_predict"),
        ({"options": {"seed": 2**64}}, "options.seed"),
        ({"options": {"stop": ""}}, "options.stop"),
        ({"options": {"num_beams": 2}}, "options.num_beams"),
        ({"options": []}, "options"),
        ({"format": "yaml"}, "format"),
        ({"format": {"type": 3}}, "format"),
        ({"think": "much"}, "think"),
        ({"images": ["aaaa"]}, "images"),
        ({"template": "{{ .Prompt }}"}, "template"),
        ({"context": [1]}, "context"),
        ({"logprobs": True}, "logprobs"),
        ({"raw": True, "think": True}, "think has no effect with raw=true"),
        ({"raw": True, "think": "low"}, "think has no effect with raw=true"),
        ({"raw": True, "suffix": "}"}, "suffix has no effect with raw=true"),
        ({"raw": True, "system": "Be brief."}, "system has no effect with raw=true"),
        ({"stream": "false"}, "stream"),
        ({"prompt": 3}, "prompt"),
        ({"messages": [{"role": "user", "content": "x", "images": [""]}]}, "messages[0].images"),
        ({"messages": [{"content": "x"}]}, "messages[0].role"),
        ({"messages": [], "tools": [{"type": "function"}]}, "tools[0].function"),
    ],
)
def test_what_would_change_the_output_is_refused_by_name(server, fields, param):
    path = "chat" if "messages" in fields else "generate"
    answer = server.post(f"/api/{path}", **{"prompt": "x", **fields})
    if param == "options.num_beams":  # no option of Ollama: only `strict_fields` refuses it
        assert answer.status_code == 200
        with pytest.raises(ApiError, match=param):
            read(GenerateRequest, {"prompt": "x", **fields}, STRICT)
        return
    assert answer.status_code == 400
    assert answer.json().keys() == {"error"}
    assert answer.json()["error"].startswith(param)


def test_open_webui_gets_each_of_several_calls_and_their_results_come_back(agent_model):
    """What its backend sends: it makes one of calls that have the same index."""
    function = {"name": "look", "parameters": {"type": "object", "properties": {"at": {}}}}
    asked = {"role": "user", "content": "Look."}
    both = "\n".join(called("look", at=n) for n in (1, 2))
    body = {
        "model": NAME,
        "messages": [asked],
        "stream": True,
        "tools": [{"type": "function", "function": function}],
        "options": {"stop": None, "num_predict": 200},
    }

    def script(prompt):
        return str(seen) if (seen := re.findall("saw .", prompt)) else both

    with (
        SpeculativePipeline(agent_model, num_threads=1) as made,
        scripted(made, script),
        serving(made) as server,
    ):
        lines = [*map(json.loads, server.post("/api/chat", **body).text.splitlines())]
        calls = [c for line in lines for c in line["message"].get("tool_calls", ())]
        functions = [call["function"] for call in calls]
        assert [(each["index"], each["arguments"]) for each in functions] == [
            (0, {"at": 1}),
            (1, {"at": 2}),
        ]
        kept = [
            {"index": n, "id": call["id"], "function": {"name": "look", "arguments": {"at": n + 1}}}
            for n, call in enumerate(calls)
        ]
        answer = {"role": "assistant", "content": "", "tool_calls": kept}
        given = [
            {"role": "tool", "content": f"saw {n}", "tool_call_id": kept[n]["id"]} for n in (1, 0)
        ]
        body |= {"messages": [asked, answer, *given], "stream": False}
        told = server.post("/api/chat", **body).json()
        assert told["message"]["content"] == "['saw 0', 'saw 1']"


@pytest.mark.parametrize("order", [("f", "g"), ("g", "f")])
def test_results_get_the_ids_of_their_calls(order):
    calls = [{"function": {"name": name, "arguments": {"a": 1}}} for name in ("f", "g")]
    results = [{"role": "tool", "content": name, "tool_name": name} for name in order]
    answer = {"role": "assistant", "content": "", "thinking": "Hm.", "tool_calls": calls}
    body = read(ChatRequest, {"messages": [*MESSAGES, answer, *results]}, STRICT)
    [[_, said, *given]] = body.prompts
    ids = {call["function"]["name"]: call["id"] for call in said["tool_calls"]}
    assert (said["reasoning_content"], len({*ids.values()})) == ("Hm.", 2)
    assert {each["name"]: each["tool_call_id"] for each in given} == ids
