"""The server's answers, as clients over a socket get them."""

import gzip
import json
import logging

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from ov_specdec import SpeculativePipeline
from ov_specdec.api.errors import ApiError
from ov_specdec.errors import OptionError
from ov_specdec.options.generation import GenerationOptions
from ov_specdec.server.access import JsonLines, Record
from ov_specdec.server.app import make_app
from ov_specdec.server.service import Service
from ov_specdec.server.settings import LOOPBACK_NAMES, Settings
from tests.support.server import NAME, serving, wait_until

KEYS = ("key-of-a", "key-of-b")
PROMPTS = ["def area(w, h):", "x = [1, 2, 3]\n", "import os\n", "class A:", "y" * 40, "for i in"]
MESSAGES = [{"role": "user", "content": "return width"}]


@pytest.fixture(scope="module")
def guarded(chat_pair):
    main, draft = chat_pair
    settings = {"api_keys": KEYS, "cors_origins": ("https://a.example",)}
    with (
        SpeculativePipeline(main, draft, precision="exact", num_threads=1) as made,
        serving(made, **settings) as running,
    ):
        yield running


def text_of(answer):
    return answer["choices"][0]["text"]


def test_state_is_told(server):
    get = server.http.get
    assert get("/health").json() == {"status": "ok"}
    assert get("/version").json().keys() == {"version"}
    model = get("/v1/models").json()["data"][0]
    assert model == get(f"/v1/models/{NAME}").json()
    assert (model["id"], model["max_model_len"], model["chat_template"]) == (NAME, 256, True)
    assert "ov_specdec:num_requests_running" in get("/metrics").text
    seen = model["batch_invariant"]
    proven = float(seen["is_on"] and seen["is_checked"])
    gauge = f'ov_specdec:batch_invariant{{model_name="{NAME}"}} {proven}'
    assert gauge in get("/metrics").text
    assert "/v1/completions" in get("/").json()["endpoints"]
    assert get("/docs").status_code == get("/openapi.json").status_code == 200


def test_head_is_answered_wherever_get_is(server):
    paths = server.http.get("/openapi.json").json()["paths"]
    read = [path.format(model=NAME) for path, methods in paths.items() if "get" in methods]
    assert len(read) > 4
    for path in (*read, "/", "/docs", "/v1/models/nothing"):
        answer, head = server.http.get(path), server.http.head(path)
        assert (head.status_code, head.content) == (answer.status_code, b"")
        assert head.headers["content-type"] == answer.headers["content-type"]
    assert server.http.head("/v1/completions").status_code == 405


def test_an_answer_is_what_the_pipeline_gives(server, pipeline):
    for prompt in PROMPTS:
        options = {"temperature": 0, "apply_chat_template": False}
        alone = pipeline.generate(prompt, max_new_tokens=24, **options)
        answer = server.complete(prompt, max_tokens=24)
        assert text_of(answer) == alone.text
        assert answer["usage"]["completion_tokens"] == len(alone.token_ids)


@pytest.mark.parametrize(
    ("recommended", "given", "temperature"),
    [
        ({}, {}, 1.0),
        ({"do_sample": True, "temperature": 0.6}, {"top_p": 0.5}, 0.6),
        ({"do_sample": True, "temperature": 0.6}, {"temperature": 0.0}, 0.0),
        ({"do_sample": False}, {}, 1.0),
    ],
)
def test_requests_without_a_temperature_have_the_recommended_one_or_1(
    server, pipeline, monkeypatch, recommended, given, temperature
):
    monkeypatch.setattr(pipeline, "_defaults", recommended)
    options = GenerationOptions(**given)
    assert server.service.engine.complete(options, None).temperature == temperature


@pytest.mark.parametrize(
    ("body", "code", "param", "words"),
    [
        ({"prompt": "x" * 5000}, "context_length_exceeded", None, "context length is 256"),
        ({"prompt": [99999]}, None, None, "token id 99999"),
        ({"prompt": ["a"] * 200}, None, "prompt", "200 prompts exceed the 144"),
        ({"prompt": "a", "logit_bias": {"99999": 1}}, None, "logit_bias", "token id 99999"),
        ({"prompt": "a", "src_lang": "de"}, None, "src_lang", "needs an encoder-decoder model"),
        ({"prompt": "a", "cache_salt": "x" * 257}, None, "cache_salt", "256"),
        ({"prompt": "a", "max_tokens": 0, "logprobs": 1}, None, "max_tokens", "max_tokens=0"),
    ],
)
def test_what_the_model_cannot_do_is_a_400(server, body, code, param, words):
    answer = server.post("/v1/completions", **body)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert (error["code"], error["param"]) == (code, param)
    assert words in error["message"]


UNREADABLE = {
    "an end": (b"{", 400),
    "no text": (b"\xff", 400),
    "too deep": (b"[" * 100_000, 400),
    "NaN": (b'{"prompt": "a", "temperature": NaN}', 400),
    "another kind": (b'{"prompt": "a"}', 400),
    "a surrogate": ('{"prompt": "a", "\\ud800": 1}'.encode("utf-16"), 400),
    "deep": (b'{"a": ' + b"[" * 480 + b"]" * 480 + b"}", 400),
    "too long": (b" " * 4_000_001, 413),
    "of no length": ((b" " * 1_000_000 for _ in range(5)), 413),
}


@pytest.mark.parametrize("what", UNREADABLE)
def test_bodies_that_cannot_be_read_are_refused(server, what):
    content, status = UNREADABLE[what]
    kind = {"content-type": "text/plain" if what == "another kind" else "application/json"}
    answer = server.http.post("/v1/completions", content=content, headers=kind)
    assert answer.status_code == status
    assert answer.json()["error"]["message"]


def test_a_compressed_body_is_named_as_such(server):
    headers = {"content-type": "application/json", "content-encoding": "GZIP"}
    answer = server.http.post("/v1/completions", content=gzip.compress(b"{}"), headers=headers)
    error = answer.json()["error"]
    assert (answer.status_code, error["type"]) == (415, "invalid_request_error")
    assert "the content encoding 'GZIP'" in error["message"]


def test_paths_and_methods_that_are_not_there(server):
    for answer in (server.http.get("/nothing"), server.http.get("/v1/completions")):
        assert answer.status_code in (404, 405)
        assert answer.json()["error"].keys() == {"message", "type", "param", "code"}
        assert answer.headers["x-request-id"]


def test_tokens_there_and_back(server):
    told = server.post("/tokenize", prompt="def area(", return_token_strs=True).json()
    assert told["count"] == len(told["tokens"]) == len(told["token_strs"])
    assert "".join(told["token_strs"]) == "def area("
    assert server.post("/detokenize", tokens=told["tokens"]).json() == {"prompt": "def area("}
    assert server.post("/detokenize", tokens=[-1]).status_code == 400


def test_a_key_is_needed_where_one_is_set(guarded):
    assert guarded.http.get("/health").status_code == 200
    for key in (None, "wrong", KEYS[0][:-1], KEYS[0] + "x"):
        answer = guarded.post("/v1/completions", key, prompt="a")
        assert answer.status_code == 401
        assert answer.json()["error"]["code"] == "invalid_api_key"
    assert guarded.http.get("/v1/models").status_code == 401
    for key in KEYS:
        assert guarded.post("/v1/completions", key, prompt="a").status_code == 200


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"api_keys": [b"secret"]}, "api_keys must be a text, or several"),
        ({"api_keys": ["a", ""]}, "API key 2 is empty"),
        ({"api_keys": ["schl\u00fcssel"]}, "API key 1 cannot be sent in a header"),
        ({"max_queue": "128"}, "max_queue='128' must be a whole number"),
        ({"queue_timeout": None}, "queue_timeout=None must be a number above 0"),
        ({"shutdown_timeout": -1}, "shutdown_timeout=-1 must be a number of at least 0"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(settings, words):
    with pytest.raises(OptionError) as error:
        Settings(**settings)
    assert str(error.value).startswith(words)
    assert "secret" not in str(error.value)
    assert Settings(api_keys=["a b"]) == Settings(api_keys="a b")


def test_what_one_key_has_cached_is_not_told_to_another(guarded):
    def cached(key, **fields):
        assert not [each for each in KEYS if each in repr(guarded.service.settings)]
        body = {"prompt": "def secret(): return 42\n", "max_tokens": 1, **fields}
        usage = guarded.post("/v1/completions", key, **body).json()["usage"]
        return usage["prompt_tokens_details"]["cached_tokens"]

    assert cached(KEYS[0]) == 0
    assert cached(KEYS[0]) > 0
    assert cached(KEYS[1]) == 0
    assert cached(KEYS[0], cache_salt="shared") == 0
    assert cached(KEYS[0], cache_salt="shared") > 0
    assert cached(KEYS[1], cache_salt="shared") == 0


def test_only_the_given_web_sites_may_call(guarded):
    def allowed(origin):
        headers = {"origin": origin, "access-control-request-method": "POST"}
        answer = guarded.http.options("/v1/completions", headers=headers)
        return answer.headers.get("access-control-allow-origin")

    assert allowed("https://a.example") == "https://a.example"
    assert allowed("https://b.example") is None


def test_what_callers_call_themselves_and_the_model_is_logged_in_part(server, caplog):
    caplog.set_level("INFO", "ov_specdec.server")
    server.post("/v1/completions", prompt="a", max_tokens=1, user="u" * 10_000)
    server.post("/v1/completions", prompt="a", max_tokens=1, model="m" * 10_000)
    server.post("/" + "p" * 10_000)
    template = {"chat_template_kwargs": {"k" * 10_000: 1}}
    answer = server.post("/v1/chat/completions", messages=MESSAGES, **template)
    assert "'kkk" in answer.json()["error"]["message"]
    assert len(answer.text) < 1000
    wait_until(lambda: sum(hasattr(record, "record") for record in caplog.records) == 4)
    lines = [json.dumps(record.record.as_dict()) for record in caplog.records]
    assert "u" * 128 in lines[0]
    assert max(map(len, lines)) < 2500


def test_no_text_of_a_request_ends_a_log_line_or_controls_a_terminal():
    record = Record("GET", "/\r\n\x1b[2J\x9b2J\x85\u2028\ud800", user="\u2029")
    entry = logging.LogRecord("x", logging.INFO, "x", 1, "request", (), None)
    entry.record = record
    line = JsonLines().format(entry)
    assert line.isascii()
    assert line.isprintable()
    assert json.loads(line)["path"] == record.path
    record.fail(ApiError(400, "e" * 10_000))
    assert len(JsonLines().format(entry)) < 2000


@pytest.mark.parametrize("added", [(), ("My.example", "*.ours.example")])
def test_a_page_of_a_name_that_leads_here_cannot_call_it(added):
    with serving(allowed_hosts=added or LOOPBACK_NAMES) as server:
        known = [host.lower().replace("*", "a") for host in added]
        for host in ("localhost:8000", "127.0.0.1", "[::1]:8000", *known):
            assert server.http.get("/version", headers={"host": host}).status_code == 200
        for host in ("evil.example", "127.0.0.1.evil.example", ""):
            answer = server.http.get("/version", headers={"host": host})
            assert (answer.status_code, answer.json()["error"]["code"]) == (400, "unknown_host")


def test_until_models_are_loaded_requests_are_put_off():
    with serving() as server:
        for answer in (server.http.get("/health"), server.post("/v1/completions", prompt="a")):
            assert answer.status_code == 503
            assert answer.json()["error"]["code"] == "loading"
            assert answer.headers["retry-after"]
        metrics = server.http.get("/metrics").text
    assert 'ov_specdec:num_requests_running{model_name="org/tiny"} 0.0' in metrics


def test_metrics_count_what_was_answered(server):
    names = ("prompt_tokens_total", "generation_tokens_total", "spec_decode_num_drafts_total")
    line = 'ov_specdec:request_success_total{finished_reason="length",model_name="org/tiny"}'

    def ended():
        return float(server.http.get("/metrics").text.partition(line)[2].split()[0])

    before, ended_before = [server.metric(name) for name in names], ended()
    usage = server.complete("def area(", max_tokens=9, num_assistant_tokens=3)["usage"]
    prompt, generated, drafts = (
        server.metric(name) - b for name, b in zip(names, before, strict=True)
    )
    assert (prompt, generated) == (usage["prompt_tokens"], usage["completion_tokens"])
    assert drafts > 0
    assert ended() == ended_before + 1


def test_unknown_fields_are_ignored_unless_they_are_to_be_refused(server, pipeline):
    body = {"prompt": "x", "max_tokens": 1, "zzz": 1}
    assert server.post("/v1/completions", **body).status_code == 200
    with serving(pipeline, strict_fields=True) as strict:
        answer = strict.post("/v1/completions", **body)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, "zzz")
    assert error["code"] == "unknown_parameter"


def test_no_tokens_at_all_score_a_prompt(server):
    fields = {"prompt": [PROMPTS[0], [5, 6, 7]], "echo": True, "logprobs": 2, "n": 2}
    longer = server.complete(**fields, max_tokens=1)
    scored = server.complete(**fields, max_tokens=0)
    assert scored["usage"]["completion_tokens"] == 0
    assert scored["usage"]["prompt_tokens"] == longer["usage"]["prompt_tokens"]
    sent = server.post("/v1/completions", **fields, max_tokens=0, stream=True).text
    events = [json.loads(line[6:]) for line in sent.split("\n\n") if line[:7] == "data: {"]
    streamed = sorted((event["choices"][0] for event in events), key=lambda each: each["index"])
    for choice, other in zip([*scored["choices"], *streamed], 2 * longer["choices"], strict=True):
        assert other["text"].startswith(choice["text"])
        assert choice["finish_reason"] == "length"
        for name, values in choice["logprobs"].items():
            assert values == other["logprobs"][name][:-1]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("path", "fields", "field"),
    [
        ("/v1/completions", {"prompt": ["x", "x " * 3000]}, "max_tokens"),
        ("/v1/chat/completions", {"messages": MESSAGES * 300}, "max_completion_tokens"),
        ("/v1/responses", {"input": "x " * 3000}, "max_output_tokens"),
    ],
)
def test_overflows_have_the_words_of_clients_and_no_length_is_0(
    server, path, fields, field, stream
):
    answer = server.post(path, **fields, stream=stream)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (400, "context_length_exceeded")
    # LiteLLM and LangChain fall back to another model where these words are: the first in its
    # `is_error_str_context_window_exceeded`, the others in `_handle_openai_bad_request`.
    for words in ("This model's maximum context length is 256 tokens", "prompt is too long"):
        assert words in error["message"]
    [name] = fields
    short = {name: MESSAGES if name == "messages" else "a"}
    answer = server.post(path, **short, **{field: 0}, stream=stream)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, field)


@pytest.mark.parametrize("prefix", ["", "/llm"])
def test_every_path_needs_a_key_but_those_that_are_meant_to_be_open(prefix, caplog):
    caplog.set_level("INFO", "ov_specdec.server")
    outer, app = FastAPI(), make_app(Service(Settings(api_keys=KEYS)))
    app.get("/new")(lambda: "new")
    outer.mount(prefix, app)
    client = TestClient(outer)
    paths = {route.path.partition("{")[0] for route in app.routes}
    assert {"/", "/v1/models/", "/tokenize", "/docs", "/new"} < paths
    paths |= {"/nothing", "/v1/nothing", "/health/x", "//health", "/docs/x", "/HEALTH"}
    methods = ("GET", "POST", "OPTIONS")
    refused = {
        path
        for path in paths
        if {client.request(each, prefix + path).status_code for each in methods} == {401}
    }
    documentation = {"/docs", "/docs/oauth2-redirect", "/redoc", "/openapi.json"}
    assert paths - refused == {"/health", "/metrics", *documentation}
    key = {"authorization": f"Bearer {KEYS[0]}"}
    assert client.get(f"{prefix}/v1/models", headers=key).status_code == 503
    assert client.get(f"{prefix}/new", headers=key).status_code == 200
    caplog.clear()
    assert client.get(f"{prefix}/metrics").status_code == 200
    assert not caplog.records
