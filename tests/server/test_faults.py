"""What goes wrong stays with the request that it goes wrong for; and the server goes on."""

import asyncio
import json
import socket
import threading
import time
from contextlib import ExitStack, contextmanager

import httpx
import pytest

from ov_specdec import SpeculativePipeline
from ov_specdec.server import engine, limits, reply
from ov_specdec.server.app import make_app
from ov_specdec.server.stream import Stream
from tests.support.flaky import FlakyRequest, make_flaky
from tests.support.server import has_client_left, paused, scope_of_completion, serving, wait_until

LONG = {"prompt": "def area(", "max_tokens": 200, "temperature": 0, "ignore_eos": True}


@pytest.fixture(scope="module")
def pipeline(chat_pair):
    main, draft = chat_pair
    settings = {"precision": "exact", "num_threads": 1, "max_batch_size": 4}
    # A pass that is to fail must not run on a static shape instead.
    with SpeculativePipeline(main, draft, static_shapes="none", **settings) as made:
        made.prepare(seconds=0.2)
        yield made


@pytest.fixture(scope="module")
def server(pipeline):
    with serving(pipeline, max_queue=8) as running:
        yield running


@pytest.fixture(autouse=True)
def still_answers(server):
    """After every test the server is idle, holds no memory, and answers what it should."""
    yield
    wait_until(lambda: server.metric("num_requests_running") == 0)
    wait_until(lambda: server.service.slots.taken.total() == 0)
    # Passes are compared while nothing else runs, and hold memory meanwhile.
    wait_until(lambda: server.metric("kv_cache_usage_perc") == 0)
    assert server.http.get("/health").status_code == 200
    answer = server.complete("def area(", max_tokens=4)
    assert answer["usage"]["completion_tokens"] == 4
    server.wait()


@contextmanager
def in_background(function, count=1):
    """Results of calls in threads, once the block has ended."""
    results = []
    threads = [threading.Thread(target=lambda: results.append(function())) for _ in range(count)]
    for thread in threads:
        thread.start()
    yield results
    for thread in threads:
        thread.join(60)


def stream(server, **fields):
    return server.http.stream("POST", "/v1/completions", json={**LONG, "stream": True, **fields})


def test_a_client_that_leaves_a_stream_frees_its_memory(server, pipeline, monkeypatch, caplog):
    caplog.set_level("INFO", "ov_specdec.server")
    steps = count_steps(server)
    with paused(pipeline, monkeypatch, after=2) as goes_on:
        # Of a constant length, before which no costs are measured.
        with stream(server, num_assistant_tokens=2) as response:
            lines = response.iter_lines()  # kept: without it, the connection would be closed
            next(lines)
            assert server.metric("num_requests_running") == 1
        wait_until(lambda: has_client_left(caplog))
        goes_on.set()
    wait_until(lambda: server.metric("num_requests_running") == 0)
    assert steps() < 100  # of the 200 tokens, most were not generated


def count_steps(server):
    before = server.metric("generation_tokens_total")
    return lambda: server.metric("generation_tokens_total") - before


def test_a_full_queue_is_told(server, pipeline, monkeypatch):
    with paused(pipeline, monkeypatch) as goes_on:
        ask = {**LONG, "max_tokens": 2}
        with in_background(lambda: server.post("/v1/completions", **ask), 12) as answers:
            wait_until(lambda: server.service.slots.taken.total() == 12)
            refused = server.post("/v1/completions", **ask)
            goes_on.set()
    assert refused.status_code == 429
    assert refused.json()["error"]["code"] == "queue_full"
    assert int(refused.headers["retry-after"]) >= 1
    assert [answer.status_code for answer in answers] == [200] * 12
    assert server.post("/v1/completions", **ask, n=13).json()["error"]["param"] == "n"


def test_what_takes_too_long_ends_with_an_error(pipeline, monkeypatch):
    with serving(pipeline, request_timeout=1.0) as server, stream(server) as response:
        lines = response.iter_lines()
        assert "choices" in next(lines)
        with paused(pipeline, monkeypatch):
            events = [line for line in lines if line]
            answer = server.post("/v1/completions", **LONG)
    assert json.loads(events[-1][6:])["error"]["code"] == "timeout"
    assert (answer.status_code, answer.json()["error"]["code"]) == (504, "timeout")


@pytest.mark.parametrize("turns", range(4))
def test_a_client_that_leaves_as_a_chunk_comes_ends_its_request(turns):
    async def leave():
        stream = Stream(1)

        async def read():
            while True:
                await stream.next(time.monotonic() + 60)

        reading = asyncio.ensure_future(read())
        await asyncio.sleep(0.01)
        stream._put(0, ["chunk"])
        for _ in range(turns):
            await asyncio.sleep(0)
        reading.cancel()
        await asyncio.wait([reading], timeout=1)
        return reading.cancelled()

    assert asyncio.run(leave())


def test_what_comes_when_the_event_loop_is_closed_harms_no_thread():
    async def begin():
        return Stream(1)

    stream = asyncio.run(begin())
    stream.put(0, ["too late"])  # as the thread that runs steps does
    stream.end(None)
    assert not stream._unread


def test_a_processor_that_raises_fails_its_request_alone(server, monkeypatch, caplog):
    def broken(tokens, row):
        if len(tokens) > 20:
            raise ValueError("a secret of the processor")
        return row

    complete = server.service.engine.complete

    def completing(options, tenant):
        if options.seed == 666:
            options = options.copy_with(logits_processor=[broken])
        return complete(options, tenant)

    monkeypatch.setattr(server.service.engine, "complete", completing)
    counted = ("prompt_tokens_total", "spec_decode_num_drafts_total")
    before = [server.metric(name) for name in counted]
    ended = server.metric("e2e_request_latency_seconds_count")
    failing = {"prompt": "x = ", "seed": 666, "max_tokens": 100, "ignore_eos": True}
    answer = server.post("/v1/completions", **failing, num_assistant_tokens=4)
    # What it had run is counted, although it was cut short.
    added = [server.metric(name) for name in counted]
    assert all(now > then for now, then in zip(added, before, strict=True))
    server.wait()
    assert server.metric("e2e_request_latency_seconds_count") == ended
    assert answer.status_code == 500
    assert "secret" not in answer.text
    assert answer.headers["x-request-id"] in answer.json()["error"]["message"]
    assert "a secret of the processor" in caplog.text
    assert answer.headers["x-request-id"] in caplog.text
    with in_background(lambda: server.complete("x = ", max_tokens=30, ignore_eos=True), 3) as good:
        assert server.post("/v1/completions", **failing).status_code == 500
    assert len({each["choices"][0]["text"] for each in good}) == 1
    assert len(good) == 3


def test_a_pass_that_fails_ends_its_requests_and_others_go_on(server, pipeline):
    runner = pipeline.main.runner
    make_flaky(runner).fails_in = 0
    answer = server.post("/v1/completions", **LONG)
    assert answer.status_code == 500
    assert "device" not in answer.text
    assert not isinstance(runner._model._request, FlakyRequest)  # a new one took its place


def test_a_step_that_fails_ends_its_requests_and_others_go_on(server, pipeline, monkeypatch):
    scheduler = server.service.engine.generator.loop.engine.scheduler

    def failing():
        monkeypatch.undo()
        raise RuntimeError("the scheduler is broken")

    monkeypatch.setattr(scheduler, "schedule", failing)
    answer = server.post("/v1/completions", **LONG)
    assert answer.status_code == 500


def test_a_reader_that_is_too_slow_does_not_stop_others(server, pipeline, monkeypatch):
    monkeypatch.setattr(reply, "MAX_UNREAD", 10)
    with serving(pipeline) as other:
        app = make_app(other.service)
        sent = []

        async def send(message):
            sent.append(message)
            if message["type"] == "http.response.body":
                await asyncio.Event().wait()  # its socket takes no more

        body = json.dumps({**LONG, "stream": True}).encode()
        messages = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive():
            if messages:
                return messages.pop()
            return await asyncio.Event().wait()

        scope = scope_of_completion(app=app)

        async def run():
            await asyncio.wait_for(app(scope, receive, send), 30)

        asyncio.run(run())
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]


def test_a_step_that_hangs_is_seen(pipeline, monkeypatch):
    monkeypatch.setattr(engine, "STEP_TIMEOUT", 0.2)
    with serving(pipeline) as server:
        with paused(pipeline, monkeypatch) as goes_on:
            ask = {**LONG, "max_tokens": 2}
            with in_background(lambda: server.post("/v1/completions", **ask)) as answers:
                wait_until(lambda: server.http.get("/health").status_code == 503)
                health = server.http.get("/health").json()
                goes_on.set()
        assert health["error"]["code"] == "engine_stalled"
        assert answers[0].status_code == 200
        assert server.http.get("/health").status_code == 200


NEW = ("/v1/completions", "/v1/chat/completions", "/tokenize", "/v1/audio/transcriptions")


def test_a_server_that_stops_finishes_what_runs_and_takes_nothing_new(pipeline, monkeypatch):
    ask = {**LONG, "max_tokens": 8}
    with (
        serving(pipeline) as server,
        paused(pipeline, monkeypatch) as goes_on,
        in_background(lambda: server.post("/v1/completions", **ask)) as answers,
    ):
        wait_until(lambda: server.service.slots.taken.total() == 1)
        server.stop()
        wait_until(lambda: server.service.drained_by is not None)
        time.sleep(0.3)  # the time in which it would have closed its socket
        # Each on a new connection.
        refused = [httpx.post(server.url + path, json={"prompt": "a"}) for path in NEW]
        refused.append(httpx.get(f"{server.url}/health"))
        listed = httpx.get(f"{server.url}/v1/models")
        goes_on.set()
    told = [(answer.status_code, answer.json()["error"]["code"]) for answer in refused]
    assert told == [(503, "draining")] * len(refused)
    assert listed.status_code == 200
    assert answers[0].json()["usage"]["completion_tokens"] == 8
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{server.url}/health")


def test_what_does_not_finish_in_time_is_ended_with_an_error(pipeline, monkeypatch):
    with (
        serving(pipeline, shutdown_timeout=0.3) as server,
        paused(pipeline, monkeypatch),
        in_background(lambda: server.post("/v1/completions", **LONG)) as answers,
    ):
        wait_until(lambda: server.service.slots.taken.total() == 1)
        server.stop()
        wait_until(lambda: bool(answers))
    assert answers[0].status_code == 503
    assert answers[0].json()["error"]["code"] == "draining"


@contextmanager
def begun(server, body, address="10.0.0.1"):
    """A connection on which a body does not go on after its first byte. address: of its client."""
    host, port = server.url.removeprefix("http://").split(":")
    head = (
        f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: {address}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection((host, int(port)), timeout=60) as client:
        client.sendall(head.encode() + body[:1])
        yield client


def read_answer(client):
    answer = b""
    while not answer.endswith(b"}"):
        answer += client.recv(4096)
    return answer


def test_bodies_that_do_not_arrive_keep_no_others_out(server):
    body = json.dumps({**LONG, "max_tokens": 1}).encode()
    arriving = server.service.arrivals._arriving
    with ExitStack() as clients:
        slow = clients.enter_context(begun(server, body, "10.0.0.2"))
        wait_until(lambda: len(arriving) == 1)
        silent = [clients.enter_context(begun(server, body)) for _ in range(30)]
        wait_until(lambda: len(arriving) == 12)  # of a place for each slot
        assert server.service.slots.taken.total() == 0
        # Neither one of their address, nor one that is slow.
        assert server.complete("def area(", max_tokens=1)
        slow.sendall(body[1:])
        assert read_answer(slow).startswith(b"HTTP/1.1 200")
        assert read_answer(silent[0]).startswith(b"HTTP/1.1 408")
    wait_until(lambda: not arriving)


def test_a_body_that_does_not_arrive_is_given_up(pipeline, monkeypatch):
    monkeypatch.setattr(limits, "TIMEOUT", 0.2)
    with serving(pipeline) as server, begun(server, b"{}") as slow:
        answer = read_answer(slow)
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"the body has not arrived in time" in answer
