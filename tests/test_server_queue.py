"""Who is served when, who waits for how long, and what a request is read for."""

import asyncio
import json
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse

from ov_specdec import SpeculativePipeline
from ov_specdec.openai import ApiError
from ov_specdec.openai.streaming import StreamedCompletion
from ov_specdec.server import reply
from ov_specdec.server.access import digest_of
from ov_specdec.server.app import make_app
from ov_specdec.server.bodies import LARGE, read_form, read_json
from ov_specdec.server.engine import LocalEngine
from ov_specdec.server.queue import Queue
from tests.server import paused, scope_of_completion, serving, wait_until

ASK = {"prompt": "def area(", "max_tokens": 2, "temperature": 0, "ignore_eos": True}
SOON = 0.05
PATIENCE = 30
FORM = "multipart/form-data; boundary=end"


@pytest.fixture(scope="module")
def pipeline(chat_pair):
    main, draft = chat_pair
    with SpeculativePipeline(main, draft, precision="exact", num_threads=1) as made:
        made.prepare(seconds=0.2)
        yield made


async def settled():
    """Let everybody go on to what they wait for."""
    for _ in range(10):
        await asyncio.sleep(0)


class Visitors:
    """Requests in a queue, by name: who has had a turn, and in which order."""

    def __init__(self, queue):
        self.queue = queue
        self.served = []
        self._tasks = {}
        self._leave = {}

    async def come(self, name, key, size=1):
        leave = self._leave[name] = asyncio.Event()

        async def visit():
            with self.queue.entered(key) as place:
                place.grow(size)
                await place.turn(60)
                self.served.append(name)
                await leave.wait()

        self._tasks[name] = asyncio.ensure_future(visit())
        await settled()

    async def leave(self, name):
        self._leave[name].set()
        await self._tasks[name]
        await settled()

    async def give_up(self, name):
        self._tasks[name].cancel()
        with suppress(asyncio.CancelledError):
            await self._tasks[name]
        await settled()


def visit(num_places, max_waiting, play):
    async def run():
        visitors = Visitors(Queue(num_places, max_waiting))
        await asyncio.wait_for(play(visitors), 20)
        return visitors

    return asyncio.run(run())


def test_keys_are_served_in_turns_and_those_of_one_key_as_they_came():
    async def play(visitors):
        for name in ("a1", "a2", "a3", "b1", "b2", "c1"):
            await visitors.come(name, name[0])
        assert (visitors.served, visitors.queue.num_waiting) == (["a1"], 5)
        for number in range(5):
            await visitors.leave(visitors.served[number])

    assert visit(1, 10, play).served == ["a1", "a2", "b1", "c1", "a3", "b2"]


def test_nobody_overtakes_a_request_that_needs_several_places():
    async def play(visitors):
        await visitors.come("one", "a")
        await visitors.come("two", "b", size=2)
        await visitors.come("small", "c")
        assert visitors.served == ["one"]
        await visitors.leave("one")
        assert visitors.served == ["one", "two"]
        await visitors.leave("two")

    assert visit(2, 10, play).served == ["one", "two", "small"]


def test_a_request_with_more_choices_than_places_runs_alone():
    async def play(visitors):
        await visitors.come("many", "a", size=5)
        await visitors.come("next", "a")
        assert visitors.served == ["many"]
        await visitors.leave("many")

    assert visit(2, 10, play).served == ["many", "next"]


def test_who_gives_up_while_waiting_makes_room():
    async def play(visitors):
        for name in ("a", "b", "c"):
            await visitors.come(name, name)
        await visitors.give_up("b")
        assert (visitors.queue.num_waiting, visitors.queue.num_active) == (1, 2)
        await visitors.give_up("a")

    visitors = visit(1, 5, play)
    assert visitors.served == ["a", "c"]


def test_there_is_room_for_so_many_and_no_more():
    queue = Queue(2, 1)
    with ExitStack() as places:
        first, _, _ = (places.enter_context(queue.entered(None)) for _ in range(3))
        with pytest.raises(ApiError, match="3 requests are running or waiting"):
            places.enter_context(queue.entered(None))
        with pytest.raises(ApiError, match="3 requests are running"):
            first.grow(2)
        with pytest.raises(ApiError, match="4 choices exceed the 3 places"):
            first.grow(4, 4)
    assert queue.num_active == 0


def test_a_full_queue_takes_one_request_of_each_other_key():
    queue = Queue(2, 1)
    with ExitStack() as places:
        for _ in range(3):
            places.enter_context(queue.entered("a"))
        places.enter_context(queue.entered("b")).grow(3)
        for key in ("a", "b"):
            with pytest.raises(ApiError, match="6 requests are running"):
                places.enter_context(queue.entered(key))
    assert queue.num_active == 0


def test_a_place_is_kept_while_a_thread_works_for_a_client_that_has_left(pipeline, monkeypatch):
    working, goes_on, check = threading.Event(), threading.Event(), LocalEngine._check

    def waiting(*given):
        working.set()
        assert goes_on.wait(PATIENCE)
        return check(*given)

    async def run(app, queue):
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
        num_active = queue.num_active
        goes_on.set()
        await answering
        return num_active, queue.num_active

    monkeypatch.setattr(LocalEngine, "_check", waiting)
    with serving(pipeline) as server:
        app = make_app(server.service)
        assert asyncio.run(run(app, server.service.queue)) == (1, 0)


def test_a_request_that_waits_too_long_is_told_to_come_again(pipeline, monkeypatch):
    settings = {"max_batch_size": 1, "max_queue": 4, "queue_timeout": SOON}
    with serving(pipeline, **settings) as server, paused(pipeline, monkeypatch) as goes_on:
        first = threading.Thread(target=lambda: server.post("/v1/completions", **ASK))
        first.start()
        wait_until(lambda: server.metric("num_requests_running") == 1)
        for stream in (False, True):
            answer = server.post("/v1/completions", **ASK, stream=stream)
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "queue_timeout")
            assert int(answer.headers["retry-after"]) >= 1
        goes_on.set()
        first.join()
        wait_until(lambda: server.service.queue.num_active == 0)


def test_requests_of_a_server_have_their_turns_key_by_key(pipeline, monkeypatch, caplog):
    caplog.set_level("INFO", "ov_specdec.server")
    settings = {"max_batch_size": 1, "api_keys": ("key-of-a", "key-of-b")}
    keys = [settings["api_keys"][letter == "b"] for letter in "aaab"]
    with serving(pipeline, **settings) as server, ThreadPoolExecutor() as threads:
        with paused(pipeline, monkeypatch) as goes_on:
            answers = []
            for number, key in enumerate(keys):
                answers.append(threads.submit(server.post, "/v1/completions", key, **ASK))
                wait_until(lambda n=number: server.service.queue.num_active > n)
                wait_until(lambda n=number: server.metric("num_requests_waiting") == n)
            goes_on.set()
        assert all(answer.result().is_success for answer in answers)
        wait_until(lambda: len(caplog.records) == len(keys))
    tenants = [record.record.tenant for record in caplog.records]
    assert tenants == [digest_of(keys[number]).hex()[:16] for number in (0, 1, 3, 2)]


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


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/v1/completions", "application/json"),
        ("/v1/audio/transcriptions", FORM),
        ("/tokenize", "application/json"),
        ("/detokenize", "application/json"),
    ],
)
def test_what_there_is_no_room_for_is_not_read(pipeline, path, kind):
    with serving(pipeline, max_batch_size=1, max_queue=1) as server:
        queue, app = server.service.queue, make_app(server.service)
        headers = [(b"content-type", kind.encode())]
        with queue.entered(None), queue.entered(None):
            assert unread(app, path=path, headers=headers) == (429, "queue_full")


def request(content, kind):
    """A request with a body."""
    messages = [{"type": "http.request", "body": content, "more_body": False}]

    async def receive():
        return messages.pop()

    scope = scope_of_completion(headers=[(b"content-type", kind.encode())])
    return Request(scope, receive)


@pytest.mark.parametrize("size", [1, LARGE])
def test_large_bodies_are_read_in_another_thread(size):
    content = json.dumps({"prompt": "x" * size}).encode()
    ask = request(content, "application/json")
    reader = asyncio.run(read_json(ask, 2 * LARGE, 1.0, lambda _: threading.get_ident()))
    assert (reader == threading.get_ident()) == (size == 1)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", ASK),
        ("/v1/responses", {"input": "area", "max_output_tokens": 2}),
        ("/tokenize", {"prompt": "area"}),
    ],
)
def test_answers_are_encoded_in_another_thread(pipeline, monkeypatch, path, body):
    encode, in_loop = JSONResponse.render, []

    def noted(response, content):
        in_loop.append(asyncio._get_running_loop() is not None)
        return encode(response, content)

    monkeypatch.setattr(JSONResponse, "render", noted)
    with serving(pipeline) as server:
        assert server.post(path, **body).status_code == 200
    assert in_loop == [False]


def test_the_log_probabilities_of_a_streamed_prompt_are_described_in_another_thread(
    pipeline, monkeypatch
):
    add, in_loop = StreamedCompletion.add, []

    def noted(events, index, chunk):
        if chunk.prompt_logprobs:
            in_loop.append(asyncio._get_running_loop() is not None)
        return add(events, index, chunk)

    monkeypatch.setattr(StreamedCompletion, "add", noted)
    with serving(pipeline) as server:
        answer = server.post("/v1/completions", **ASK, stream=True, echo=True, logprobs=2)
    assert answer.text.endswith("data: [DONE]\n\n")
    assert in_loop == [False]


def test_uploads_are_kept_on_the_disk():
    head = b'--end\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n'
    ask = request(head + bytes(2**21) + b"\r\n--end--\r\n", FORM)
    _, file = asyncio.run(read_form(ask, 2**22, 1.0, ()))
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
        assert count(finished_reason="error", error="", status="400") == 1
        assert count(finished_reason="error", error="unsupported_value", status="400") == 1
        assert count(finished_reason="timeout", error="timeout", status="504") == 2
        assert count() == 4


def test_the_times_of_a_request_are_observed_from_its_arrival(pipeline, monkeypatch):
    names = (
        *("request_queue_time_seconds", "request_prefill_time_seconds"),
        *("request_decode_time_seconds", "time_to_first_token_seconds"),
        *("e2e_request_latency_seconds", "request_prompt_tokens", "request_generation_tokens"),
    )
    with serving(pipeline, max_batch_size=1) as server:
        with paused(pipeline, monkeypatch) as goes_on, ThreadPoolExecutor() as threads:
            first = threads.submit(server.post, "/v1/completions", **ASK)
            wait_until(lambda: server.metric("num_requests_running") == 1)
            second = threads.submit(server.post, "/v1/completions", **ASK)
            wait_until(lambda: server.metric("num_requests_waiting") == 1)
            threading.Event().wait(SOON)
            goes_on.set()
            assert first.result().is_success
            assert second.result().is_success
        assert [server.metric(f"{name}_count") for name in names] == [2] * len(names)
        queue, prefill, _, to_first, whole = (server.metric(f"{name}_sum") for name in names[:5])
        assert queue > SOON
        assert queue + prefill < to_first < whole
        assert server.metric("request_generation_tokens_sum") == 4
        exported = server.http.get("/metrics").text
        size = f'kv_cache_size_tokens="{pipeline.main.runner.capacity}"'
        (cache,) = re.findall("ov_specdec:cache_config_info{.*}", exported)
        assert size in cache
        # A counter that begins with its first request hides it from `rate`.
        assert 'request_success_total{finished_reason="stop",model_name="org/tiny"} 0' in exported
