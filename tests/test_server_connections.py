"""Clients that send too slowly or too much, or do not read, as a socket has them."""

import json
import socket

import pytest

from ov_specdec import SpeculativePipeline
from ov_specdec.server import connection
from ov_specdec.server.connection import MAX_SMALL, MIN_READ, SMALL, Connection
from tests.server import serving, wait_until

SOON = 0.1
PATIENCE = 30
HEAD = b"POST /detokenize HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


@pytest.fixture(scope="module")
def server(chat_pair):
    with (
        SpeculativePipeline(*chat_pair, precision="exact", num_threads=1) as pipeline,
        serving(pipeline) as running,
    ):
        yield running


def connect(server, buffer=None):
    client = socket.socket()
    if buffer is not None:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    client.settimeout(PATIENCE)
    host, port = server.url.removeprefix("http://").split(":")
    client.connect((host, int(port)))
    return client


@pytest.mark.parametrize("sent", [b"", b"GET /health HTTP/1.1\r\nHost: x\r\n"])
def test_a_head_that_does_not_arrive_is_not_waited_for(server, monkeypatch, sent):
    monkeypatch.setattr(connection, "KEEP_ALIVE", SOON)
    with connect(server) as client:
        client.sendall(sent)
        assert client.recv(100) == b""


def test_the_second_head_of_a_connection_is_not_waited_for_either(server, monkeypatch):
    monkeypatch.setattr(connection, "KEEP_ALIVE", SOON)
    with connect(server) as client:
        client.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\nGET")
        answer = b""
        while part := client.recv(1000):
            answer += part
    assert answer.startswith(b"HTTP/1.1 200")


def test_a_head_has_a_maximum_size(server):
    with connect(server) as client:
        client.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 200_000)
        try:
            answer = client.recv(100)
        except ConnectionResetError:  # it has not read all of it
            answer = b""
    assert answer[:12] in (b"HTTP/1.1 400", b"")


@pytest.mark.parametrize(
    ("size", "count", "is_read"),
    [(1, MAX_SMALL, True), (1, MAX_SMALL + 1, False), (SMALL, 2 * MAX_SMALL, True)],
)
def test_a_body_of_many_small_chunks_is_refused(server, size, count, is_read):
    chunk = f"{size:x}\r\n{' ' * size}\r\n".encode()
    with connect(server) as client:
        client.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunk * count + b"0\r\n\r\n")
        answer = b""
        while b"JSON" not in answer and (part := client.recv(1000)):
            answer += part
    assert answer.startswith(b"HTTP/1.1 400")
    assert (b"the body is not valid JSON" in answer) == is_read


def test_an_answer_that_is_not_read_is_dropped(server, monkeypatch):
    monkeypatch.setattr(connection, "READ_SECONDS", SOON)
    made, lost, dropped = Connection.connection_made, Connection.connection_lost, set()

    def with_a_small_buffer(self, transport):
        made(self, transport)
        own = transport.get_extra_info("socket")
        own.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)

    def noted(self, error):
        lost(self, error)
        dropped.add(self.client)

    monkeypatch.setattr(Connection, "connection_made", with_a_small_buffer)
    monkeypatch.setattr(Connection, "connection_lost", noted)
    token = server.post("/tokenize", prompt="def area(").json()["tokens"][0]
    body = json.dumps({"tokens": [token] * 100_000}).encode()
    with connect(server, buffer=4096) as client:
        client.sendall(HEAD + f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
        wait_until(lambda: client.getsockname() in dropped)


@pytest.mark.parametrize(("left", "is_dropped"), [(MIN_READ, False), (MIN_READ + 1, True)])
def test_a_client_that_reads_slowly_is_waited_for(left, is_dropped):
    class Transport:
        size, is_aborted = 2 * MIN_READ, False

        def get_write_buffer_size(self):
            return self.size

        def abort(self):
            self.is_aborted = True

    class Loop:
        def __init__(self):
            self.checks = []

        def call_later(self, seconds, check):
            self.checks.append(check)

    slow = Connection.__new__(Connection)
    slow.transport, slow.loop = Transport(), Loop()
    slow._watch_reader()
    slow.transport.size = left
    slow.loop.checks[0]()
    assert slow.transport.is_aborted == is_dropped
    assert len(slow.loop.checks) == 1 + (not is_dropped)
