"""Clients that others have written, on the server as it is."""

from pathlib import Path

import openai
import pytest
from pydantic import BaseModel, Field

from tests.support.server import NAME, official_client

GREEDY = {"model": NAME, "temperature": 0}
CHAT = {**GREEDY, "messages": [{"role": "user", "content": "return width"}]}
RESPONSE = {**GREEDY, "input": "return width", "max_output_tokens": 6}


@pytest.fixture(scope="module")
def client(server):
    return official_client(server, openai.OpenAI)


def test_the_official_client_chats(client):
    asked = {**CHAT, "max_tokens": 8}
    answer = client.chat.completions.create(**asked, logprobs=True, top_logprobs=2)
    choice = answer.choices[0]
    assert (choice.finish_reason, answer.usage.completion_tokens) == ("length", 8)
    assert len(choice.logprobs.content) == 8
    assert len(choice.logprobs.content[0].top_logprobs) == 2
    told = {"stream_options": {"include_usage": True}}
    chunks = list(client.chat.completions.create(**asked, stream=True, **told))
    assert chunks[0].choices[0].delta.role == "assistant"
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == choice.message.content
    assert chunks[-1].usage.total_tokens == answer.usage.total_tokens


def test_the_official_client_completes_where_its_types_are_narrower(server):
    # There the first token of a prompt has no log-probability, and pieces no finish_reason yet.
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none")
    fields = {**GREEDY, "prompt": "a = ", "max_tokens": 3, "echo": True}
    answer = client.completions.create(**fields, logprobs=1).choices[0]
    assert (answer.logprobs.token_logprobs[0], answer.logprobs.top_logprobs[0]) == (None, None)
    assert all(answer.logprobs.token_logprobs[1:])
    told = {"include_usage": True, "continuous_usage_stats": True}
    *events, last = client.completions.create(**fields, stream=True, stream_options=told)
    assert "".join(event.choices[0].text for event in events) == answer.text
    assert last.usage.completion_tokens == events[-1].usage.completion_tokens == 3


def test_the_official_client_gets_responses(client):
    answer = client.responses.create(**RESPONSE, metadata={"a": "b"})
    assert (answer.status, answer.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert answer.metadata == {"a": "b"}
    chat = client.chat.completions.create(**CHAT, max_tokens=6)
    assert answer.output_text == chat.choices[0].message.content
    events = list(client.responses.create(**RESPONSE, stream=True))
    assert events[-1].type == "response.incomplete"
    assert events[-1].response.output_text == answer.output_text
    text = "".join(each.delta for each in events if each.type == "response.output_text.delta")
    assert text == answer.output_text


class Size(BaseModel, extra="forbid"):
    size: int = Field(ge=0, le=99)
    is_large: bool


def test_the_official_client_parses_answers(client):
    chat = client.chat.completions.parse(**CHAT, response_format=Size, max_tokens=100)
    assert isinstance(chat.choices[0].message.parsed, Size)
    response = client.responses.parse(**{**RESPONSE, "max_output_tokens": 100}, text_format=Size)
    assert isinstance(response.output_parsed, Size)
    assert response.text.format.name == "Size"
    outputs = {"choice": ["left", "right"]}
    asked = {"prompt": "x", "extra_body": {"structured_outputs": outputs}}
    completion = client.completions.create(**GREEDY, **asked)
    assert completion.choices[0].text in outputs["choice"]


def test_the_example_of_the_documentation_runs(server, capsys):
    page = (Path(__file__).parents[2] / "docs" / "server.md").read_text(encoding="utf-8")
    code = page.partition("```python\n")[2].partition("```")[0]
    here = code.replace("http://127.0.0.1:8000", server.url).replace("Qwen3-8B-int4-ov", NAME)
    here = "\n".join(line for line in here.splitlines() if "for Qwen3" not in line)
    assert NAME in here
    shown = ""
    for _ in range(5):  # it samples without a seed, and a tiny model may write a line break only
        exec(here, {})  # noqa: S102
        shown += capsys.readouterr().out
        if shown.strip():
            break
    assert shown.strip()


def test_langchain_knows_an_overflow(server):
    from langchain_core.exceptions import ContextOverflowError
    from langchain_openai import ChatOpenAI

    model = ChatOpenAI(model=NAME, base_url=f"{server.url}/v1", api_key="none", max_retries=0)
    for ask in (model.invoke, lambda text: list(model.stream(text))):
        with pytest.raises(ContextOverflowError, match="This model's maximum context length is 2"):
            ask("return " * 300)


def test_langchain_chats(server):
    from langchain_openai import ChatOpenAI

    model = ChatOpenAI(
        model=NAME, base_url=f"{server.url}/v1", api_key="none", temperature=0, max_tokens=6
    )
    answer = model.invoke("return width")
    assert answer.content == "".join(part.content for part in model.stream("return width"))
    assert answer.usage_metadata["output_tokens"] == 6


def test_llm_chats(server, monkeypatch, tmp_path):
    monkeypatch.setenv("LLM_USER_PATH", str(tmp_path))
    from llm.default_plugins.openai_models import Chat

    model = Chat("tiny", model_name=NAME, api_base=f"{server.url}/v1")
    answer = model.prompt("return width", temperature=0, max_tokens=6, stream=True, key="none")
    body = server.post("/v1/chat/completions", **CHAT, max_tokens=6).json()
    expected = body["choices"][0]["message"]
    assert answer.text() == expected["content"]
