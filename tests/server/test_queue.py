"""Who is served when, who waits for how long, and what a request is read for."""

import asyncio
import json
import os
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse

from ov_specdec import SpeculativePipeline
from ov_specdec.api.errors import ApiError
from ov_specdec.server import engine, reply
from ov_specdec.server.app import make_app
from ov_specdec.server.engine import MAX_TRIALS, LocalEngine
from ov_specdec.server.limits import Slots, read_fields
from ov_specdec.server.settings import Settings
from ov_specdec.text.grammar_process import Trial
from tests.support.server import paused, scope_of_completion, serving, wait_until

ASK = {"prompt": "def area(", "max_tokens": 2, "temperature": 0, "ignore_eos": True}
SOON = 0.05
PATIENCE = 30
FORM = "multipart/form-data; boundary=end"


@pytest.fixture(scope="module")
def one_by_one(chat_pair):
    """A pipeline that runs one sequence at a time."""
    main, draft = chat_pair
    with SpeculativePipeline(
        main, draft, precision="exact", num_threads=1, max_batch_size=1
    ) as made:
        made.prepare(seconds=0.2)
        yield made


def test_there_is_room_for_so_many_and_no_more():
    slots = Slots(3)
    with ExitStack() as taken:
        first, _, _ = (taken.enter_context(slots.entered(None)) for _ in range(3))
        with pytest.raises(ApiError, match="3 requests are running or waiting"):
            taken.enter_context(slots.entered(None))
        with pytest.raises(ApiError, match="3 requests are running"):
            first(2, 1)
        with pytest.raises(ApiError, match="4 choices exceed the 3 slots"):
            first(4, 4)
    assert slots.taken.total() == 0


def test_a_full_queue_takes_one_request_of_each_other_key():
    slots = Slots(3)
    with ExitStack() as taken:
        for _ in range(3):
            taken.enter_context(slots.entered("a"))
        taken.enter_context(slots.entered("b"))(3, 1)
        for key in ("a", "b"):
            with pytest.raises(ApiError, match="6 requests are running"):
                taken.enter_context(slots.entered(key))
    assert slots.taken.total() == 0


def test_a_place_is_kept_while_a_thread_works_for_a_client_that_has_left(pipeline, monkeypatch):
    working, goes_on, check = threading.Event(), threading.Event(), LocalEngine._check

    def waiting(*given):
        working.set()
        assert goes_on.wait(PATIENCE)
        return check(*given)

    async def run(app, slots):
        messages = [{"type": "http.request", "body": json.dumps(ASK).encode()}]
        left = asyncio.Event()

        async def receive():
            if messages:
                return messages.pop()
            await asyncio.to_thread(working.wait, PATIENCE)
            left.set()
            return {"type": "http.disconnect"}

        async def send(message):
            raise AssertionError("nobody reads it")

        answering = asyncio.ensure_future(app(scope_of_completion(), receive, send))
        await left.wait()
        await asyncio.wait([answering], timeout=SOON)
        num_taken = slots.taken.total()
        goes_on.set()
        await answering
        return num_taken, slots.taken.total()

    monkeypatch.setattr(LocalEngine, "_check", waiting)
    with serving(pipeline) as server:
        app = make_app(server.service)
        assert asyncio.run(run(app, server.service.slots)) == (1, 0)


def test_grammars_that_take_long_to_try_leave_threads_for_other_requests(pipeline, monkeypatch):
    goes_on, num_threads = threading.Event(), min(32, (os.cpu_count() or 1) + 4)  # of asyncio

    def tried(trial, grammar):
        assert goes_on.wait(PATIENCE)
        return "it takes too long"

    monkeypatch.setattr(Trial, "__call__", tried)
    hostile = {"prompt": "x", "max_tokens": 1}
    with serving(pipeline) as server, ThreadPoolExecutor(num_threads) as threads:
        answers = [
            threads.submit(server.post, "/v1/completions", **hostile, structured_outputs=given)
            for given in ({"regex": f"{number}+"} for number in range(num_threads))
        ]
        wait_until(lambda: server.service.slots.taken.total() == num_threads)
        answer = server.http.post("/v1/completions", json=ASK, timeout=10)
        goes_on.set()
        assert answer.is_success
        assert {each.result().status_code for each in answers} == {400}


def test_a_known_grammar_waits_for_no_other_and_a_new_one_for_its_own_key(pipeline, monkeypatch):
    goes_on, tried = threading.Event(), []

    def trying(trial, grammar):
        tried.append(grammar)
        assert "slow" not in grammar or goes_on.wait(PATIENCE)
        return ""

    def ask(key, regex):
        given = {**ASK, "structured_outputs": {"regex": regex}, "ignore_eos": False}
        return server.http.post(
            "/v1/completions", json=given, headers={"authorization": f"Bearer {key}"}, timeout=10
        )

    monkeypatch.setattr(Trial, "__call__", trying)
    keys = ("key-of-a", "key-of-b")
    with serving(pipeline, api_keys=keys) as server, ThreadPoolExecutor(MAX_TRIALS + 1) as threads:
        assert ask("key-of-b", "known").is_success
        slow = [threads.submit(ask, "key-of-a", f"slow{n}") for n in range(MAX_TRIALS + 1)]
        wait_until(lambda: server.service.slots.taken.total() == len(slow))
        wait_until(lambda: len(tried) == MAX_TRIALS)
        for regex in ("known", "new"):
            assert ask("key-of-b", regex).is_success
        assert len(tried) == MAX_TRIALS + 1
        assert ask("key-of-a", "known").is_success
        goes_on.set()
        assert all(answer.result().is_success for answer in slow)
        monkeypatch.setattr(engine, "TRIAL_WAIT", 0.0)
        assert ask("key-of-b", "known").is_success
        late = ask("key-of-b", "another")
        assert (late.status_code, late.json()["error"]["code"]) == (503, "busy")


def test_a_request_that_waits_too_long_is_told_to_come_again(one_by_one, monkeypatch):
    with serving(one_by_one, max_queue=4) as server, paused(one_by_one, monkeypatch) as goes_on:
        first = threading.Thread(target=lambda: server.post("/v1/completions", **ASK))
        first.start()
        wait_until(lambda: server.metric("num_requests_running") == 1)
        settings = server.service.settings.model_copy(update={"queue_timeout": 1.0})
        monkeypatch.setattr(server.service, "settings", settings)
        for stream in (False, True):
            answer = server.post("/v1/completions", **ASK, stream=stream)
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "queue_timeout")
            assert int(answer.headers["retry-after"]) >= 1
        goes_on.set()
        first.join()
        wait_until(lambda: server.service.slots.taken.total() == 0)


def test_a_stream_begins_with_its_turn_and_is_kept_alive(pipeline, monkeypatch):
    monkeypatch.setattr(reply, "PING_SECONDS", SOON)
    with serving(pipeline) as server, paused(pipeline, monkeypatch) as goes_on:
        body = {**ASK, "stream": True}
        with server.http.stream("POST", "/v1/completions", json=body) as response:
            assert response.status_code == 200
            lines = (line for line in response.iter_lines() if line)
            assert [next(lines), next(lines)] == [": ping"] * 2
            goes_on.set()
            assert [line for line in lines if line != ": ping"][-1] == "data: [DONE]"


def unread(app, **scope):
    """What an application answers to a request whose body it has not asked for."""
    sent = []

    async def receive():
        raise AssertionError("the body was read")

    async def send(message):
        sent.append(message)

    asyncio.run(app(scope_of_completion(**scope), receive, send))
    return sent[0]["status"], json.loads(sent[1]["body"])["error"]["code"]


def test_what_there_is_no_room_for_is_not_read(pipeline):
    kinds = dict.fromkeys(("/v1/completions", "/tokenize", "/detokenize"), "application/json")
    kinds["/v1/audio/transcriptions"] = FORM
    with serving(pipeline) as server:
        slots = server.service.slots = Slots(2)
        app = make_app(server.service)
        with slots.entered(None), slots.entered(None):
            for path, kind in kinds.items():
                headers = [(b"content-type", kind.encode())]
                assert unread(app, path=path, headers=headers) == (429, "queue_full")


def request(content, kind):
    """A request with a body."""
    messages = [{"type": "http.request", "body": content, "more_body": False}]

    async def receive():
        return messages.pop()

    scope = scope_of_completion(headers=[(b"content-type", kind.encode())])
    return Request(scope, receive)


def test_answers_are_encoded_in_another_thread(pipeline, monkeypatch):
    encode, in_loop = JSONResponse.render, []

    def noted(response, content):
        in_loop.append(asyncio._get_running_loop() is not None)
        return encode(response, content)

    monkeypatch.setattr(JSONResponse, "render", noted)
    with serving(pipeline) as server:
        assert server.post("/v1/completions", **ASK).is_success
        assert server.post("/tokenize", prompt="area").is_success
    assert in_loop == [False, False]


def test_uploads_are_kept_on_the_disk():
    head = b'--end\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n'
    ask = request(head + bytes(2**21) + b"\r\n--end--\r\n", FORM)
    [file] = asyncio.run(read_fields(ask, Settings()))["file"]
    with file:
        assert file._rolled
        assert file.seek(0, 2) == 2**21


def test_failures_are_counted_by_what_ended_them(pipeline, monkeypatch):
    with serving(pipeline, request_timeout=SOON) as server:

        def count(**labels):
            lines = server.http.get("/metrics").text.splitlines()
            wanted = [f'{name}="{value}"' for name, value in labels.items()]
            counts = [
                float(line.split()[-1])
                for line in lines
                if line.startswith("ov_specdec:request_failure_total{")
                and all(each in line for each in wanted)
            ]
            return sum(counts)

        assert count() == 0
        server.post("/v1/completions", prompt=5)
        server.post("/v1/completions", prompt="x", suffix="y")
        with paused(pipeline, monkeypatch):
            server.post("/v1/completions", **ASK)
            server.post("/v1/completions", **ASK, stream=True)
        server.http.get("/nothing")
        server.wait()
        assert count(finished_reason="error", error="", status="400") == 1
        assert count(finished_reason="error", error="unsupported_value", status="400") == 1
        assert count(finished_reason="timeout", error="timeout", status="504") == 2
        assert count() == 4


def test_the_times_of_a_request_are_observed_from_its_arrival(one_by_one, monkeypatch):
    names = (
        *("request_queue_time_seconds", "request_prefill_time_seconds"),
        *("request_decode_time_seconds", "time_to_first_token_seconds"),
        *("e2e_request_latency_seconds", "request_prompt_tokens", "request_generation_tokens"),
    )
    with serving(one_by_one) as server:
        with paused(one_by_one, monkeypatch) as goes_on, ThreadPoolExecutor() as threads:
            first = threads.submit(server.post, "/v1/completions", **ASK)
            wait_until(lambda: server.metric("num_requests_running") == 1)
            second = threads.submit(server.post, "/v1/completions", **ASK)
            wait_until(lambda: server.metric("num_requests_waiting") == 1)
            threading.Event().wait(SOON)
            goes_on.set()
            assert first.result().is_success
            assert second.result().is_success
        server.wait()
        assert [server.metric(f"{name}_count") for name in names] == [2] * len(names)
        queue, prefill, _, to_first, whole = (server.metric(f"{name}_sum") for name in names[:5])
        assert queue > SOON
        assert queue + prefill < to_first < whole
        assert server.metric("request_generation_tokens_sum") == 4
        exported = server.http.get("/metrics").text
        size = f'kv_cache_size_tokens="{one_by_one.main.runner.capacity}"'
        (cache,) = re.findall("ov_specdec:cache_config_info{.*}", exported)
        assert size in cache
        # A counter that begins with its first request hides it from `rate`.
        assert 'request_success_total{finished_reason="stop",model_name="org/tiny"} 0' in exported
