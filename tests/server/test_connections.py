"""Clients that send too slowly or too much, as a socket has them."""

import contextlib
import socket

import pytest

from ov_specdec.server import run as connection
from ov_specdec.server.run import MAX_SMALL, SMALL
from tests.support.server import serving

SOON = 0.1
PATIENCE = 30
HEALTH = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
HEAD = b"POST /detokenize HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


def connect(server):
    host, port = server.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=PATIENCE)


def read_all(client):
    """What comes until the server closes the connection."""
    answer = b""
    with contextlib.suppress(ConnectionResetError):  # it has not read all that was sent
        while part := client.recv(1000):
            answer += part
    return answer


@pytest.mark.parametrize("sent", [b"", HEALTH[:-2], HEALTH + b"GET"])
def test_a_head_that_does_not_arrive_is_not_waited_for(monkeypatch, sent):
    monkeypatch.setattr(connection, "KEEP_ALIVE", SOON)
    with serving() as server, connect(server) as client:
        client.sendall(sent)
        assert read_all(client)[:12] == (b"HTTP/1.1 503" if sent.startswith(HEALTH) else b"")


def test_a_head_has_a_maximum_size(server):
    with connect(server) as client:
        client.sendall(HEALTH[:-2] + b"X: " + b"x" * 200_000)
        assert read_all(client)[:12] in (b"HTTP/1.1 400", b"")


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


def test_the_rest_of_a_body_that_is_answered_is_not_waited_for(server, monkeypatch):
    monkeypatch.setattr(connection, "KEEP_ALIVE", SOON)
    with connect(server) as client:
        client.sendall(b"POST /nowhere HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n")
        assert client.recv(1000).startswith(b"HTTP/1.1 404")
        client.sendall(b"x")  # ends uvicorn's own waiting
        read_all(client)


def test_small_chunks_after_an_answer_end_the_connection_without_another(server, caplog):
    with connect(server) as client:
        head = b"POST /nowhere HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        client.sendall(head)
        assert client.recv(1000).startswith(b"HTTP/1.1 404")
        client.sendall(b"1\r\nx\r\n" * (MAX_SMALL + 1))
        assert b"HTTP/1.1" not in read_all(client)
    assert "Fatal error" not in caplog.text


def test_a_body_that_is_no_http_gets_one_answer(caplog):
    with serving(api_keys=("key",)) as server, connect(server) as client:
        client.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\nno number\r\n")
        assert read_all(client).count(b"HTTP/1.1 ") == 1
        server.wait()
    assert "Traceback" not in caplog.text
