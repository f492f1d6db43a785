"""A dialect is a table: a toy one is served, with nothing else that knows it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

import ov_specdec
from ov_specdec.api.answer import Answer, encode_event, encode_line
from ov_specdec.api.body import GenerationBody, with_options
from ov_specdec.api.dialect import Dialect, Framing, Generating, Query
from ov_specdec.cli.batch import GENERATING, BatchRequest, BatchRun, Results
from ov_specdec.dialects import DIALECTS
from ov_specdec.options.generation import GenerationOptions
from ov_specdec.server import reply
from tests.support.server import NAME, paused, serving


@with_options(GenerationOptions, ("temperature", "stop_strings"), stop_strings="until")
class Say(GenerationBody):
    conversation_field = ""
    fields: ClassVar = {**GenerationBody.fields, "max_new_tokens": "length"}

    begin: str
    length: int | None = None

    def read_options(self):
        known = {"apply_chat_template": False, "max_new_tokens": self.length}
        return GenerationOptions(**self.given_options, **known)

    def read_prompts(self):
        return (self.begin,)


class Said(Answer):
    def add(self, index, chunk):
        self.note(index, chunk)
        return [encode_line({"piece": chunk.text}) + b"\n"]

    def end(self):
        return [encode_line({"stopped": self.choices[0].finish_reason}) + b"\n"]

    def fail(self, error):
        return encode_line(told(error)) + b"\n"

    def whole(self):
        return {"by": self.model, "all": self.choices[0].text}


class Count(Query):
    text: str

    def answer(self, served):
        return {"count": len(served.encode(self.text, GenerationOptions()))}


def told(error):
    return {"wrong": error.message, "where": error.param}


def names(served):
    """Its names."""
    return {"names": list(served.names)}


TOY = Dialect(
    error=told,
    prefix="/toy",
    posts={"/toy/say": Generating(Say, Said), "/toy/count": Count},
    pages={"/toy/names": names},
    stream=Framing("application/x-ndjson", b""),
    key_headers=("x-toy",),
)
GREEDY = {"temperature": 0, "length": 6}


@pytest.fixture(scope="module")
def server(pipeline):
    with serving(pipeline, (*DIALECTS, TOY)) as running:
        yield running


def test_it_answers_as_openais_interface_whole_and_line_by_line(server):
    text = server.complete("def f(", max_tokens=6)["choices"][0]["text"]
    whole = server.post("/toy/say", begin="def f(", **GREEDY)
    assert whole.json() == {"by": NAME, "all": text}
    streamed = server.post("/toy/say", begin="def f(", stream=True, **GREEDY)
    assert streamed.headers["content-type"].startswith("application/x-ndjson")
    *pieces, end = map(json.loads, streamed.text.splitlines())
    assert ("".join(each["piece"] for each in pieces), end) == (text, {"stopped": "length"})
    assert server.post("/toy/count", text="def f(").json()["count"] > 0
    for path in ("/toy/names", "/toy/names/"):
        assert server.http.get(path).json() == {"names": [NAME]}
    paths = server.http.get("/").json()["endpoints"]
    assert {"/toy/say", "/toy/count", "/toy/names", "/v1/completions"} <= {*paths}
    failures = server.service.metrics.labelled
    server.post("/toy/say", begin="x", length="y")
    server.wait()
    labels = {"finished_reason": "error", "error": "", "status": "400"}
    assert failures("request_failure", **labels)._value.get() > 0


@pytest.mark.parametrize(
    ("path", "body", "status", "where"),
    [
        ("/toy/say", {"begin": "x", "length": 0}, 400, "length"),
        ("/toy/say", {"begin": "x", "until": ""}, 400, "until"),
        ("/toy/say", {"begin": "x", "model": "other"}, 404, "model"),
        ("/toy/say", {"begin": "x " * 10_000}, 400, None),
        ("/toy/say", [], 400, None),
        ("/toy/nothing", {}, 404, None),
        ("/toy/names", {}, 405, None),
        ("/toys", {}, 404, ...),
    ],
)
def test_errors_are_in_its_form_also_where_there_is_no_route(server, path, body, status, where):
    answer = server.http.post(path, json=body)
    assert answer.status_code == status
    if where is ...:  # the path of no dialect
        assert answer.json()["error"]["message"]
    else:
        assert answer.json()["wrong"]
        assert answer.json()["where"] == where


def test_its_keys_are_read_from_its_headers():
    with serving(None, (*DIALECTS, TOY), api_keys=("a", "b")) as server:

        def ask(path="/toy/names", **headers):
            return server.http.get(path, headers={k.replace("_", "-"): headers[k] for k in headers})

        for refused in (ask(), ask(x_toy="c"), ask(authorization="Basic a")):
            assert (refused.status_code, "'x-toy: KEY'" in refused.json()["wrong"]) == (401, True)
        shared = ask("/v1/models", x_toy="a")
        for passed in (ask(x_toy="b"), ask(authorization="Bearer a"), shared):
            assert passed.status_code == 503, "it is loading"
            assert "loading" in passed.text


class Named(Said):
    def add(self, index, chunk):
        self.note(index, chunk)
        return [encode_event({"piece": chunk.text}, "piece")]


@pytest.mark.parametrize("ping", [b"event: ping\ndata: {}\n\n", b""])
def test_pings_are_its_own_while_a_prompt_is_read(pipeline, monkeypatch, ping):
    monkeypatch.setattr(reply, "PING_SECONDS", 0.05)
    own = replace(TOY, posts={"/toy/say": Generating(Say, Named)}, stream=Framing(ping=ping))
    with serving(pipeline, (own,)) as server, paused(pipeline, monkeypatch) as goes_on:
        body = {"begin": "def f(", "stream": True, **GREEDY}
        with server.http.stream("POST", "/toy/say", json=body) as answer:
            pieces = answer.iter_bytes()
            if ping:
                assert next(pieces) == ping
            goes_on.set()
            assert b"event: piece\ndata: " in b"".join(pieces)


def test_files_of_requests_take_it(pipeline, tmp_path, monkeypatch):
    monkeypatch.setitem(GENERATING, "/toy/say", (TOY, TOY.posts["/toy/say"]))
    lines = [
        {"custom_id": name, "method": "POST", "url": "/toy/say", "body": {**GREEDY, **body}}
        for name, body in {"good": {"begin": "def f("}, "bad": {"begin": 3}}.items()
    ]
    results = Results(tmp_path / "results")
    requests = [BatchRequest.model_validate(each) for each in lines]
    list(BatchRun(pipeline, ["tiny"], 2).answer(requests, results))
    written = map(json.loads, (tmp_path / "results").read_text().splitlines())
    found = {each["custom_id"]: each["response"] for each in written}
    assert found["good"]["body"]["by"] == "tiny"
    assert (found["bad"]["status_code"], found["bad"]["body"]["where"]) == (400, "begin")
    assert (results.answered, results.failed, results.tokens) == (1, 1, 6)
    again = Results(tmp_path / "results")
    assert (again.skip("good"), again.skip("bad"), again.failed_before) == (True, True, 1)


def test_who_serves_dialects_knows_none():
    package = Path(ov_specdec.__file__).parent
    packages = {row.error.__module__.split(".")[1] for row in DIALECTS}
    files = [*package.glob("server/*.py"), *package.glob("cluster/*.py"), package / "cli/batch.py"]
    assert len(files) > 10 and "openai" in packages
    for file in files:
        text = file.read_text(encoding="utf-8")
        assert not [name for name in packages if f"ov_specdec.{name}" in text], file
