"""Connections of clients: HTTP/1.1 with limits of time and work."""

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

KEEP_ALIVE = 30
"""Seconds that an idle connection stays open: longer than clients keep theirs, which is 5 for httpx
and OpenAI's client. Otherwise the server could close a connection just as a request arrives."""

MAX_SMALL, SMALL = 1000, 256
"""A body may have so many chunks, or more if they have so many bytes on average. h11 takes 6 us for
a chunk of any size, in the thread that serves all connections."""


class Parser(h11.Connection):
    """Parses requests; refuses a body of many small chunks."""

    _num_chunks = _num_bytes = 0

    def next_event(self) -> Any:
        """See h11; raises `RemoteProtocolError`."""
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._num_chunks = self._num_bytes = 0
        elif isinstance(event, h11.Data):
            self._num_chunks += event.chunk_end
            self._num_bytes += len(event.data)
            if self._num_chunks > max(MAX_SMALL, self._num_bytes // SMALL):
                raise h11.RemoteProtocolError("the chunks of the body are too small")
        return event


class Connection(H11Protocol):
    """A connection of uvicorn, with h11: httptools sets no limit to the size of headers.

    Uvicorn closes connections that are idle after a request. This closes those that wait for a
    head, or for the rest of a body that is answered already.
    """

    _closing: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """A client has connected."""
        super().connection_made(transport)
        self.conn = Parser(h11.SERVER)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """A client has sent something."""
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended."""
        self._stop_watching()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Answer bytes that are no request, unless an answer has begun."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.abort()

    def _watch(self) -> None:
        """Close the connection in `KEEP_ALIVE` seconds if nothing else comes of it."""
        if self.conn.their_state is not h11.IDLE and self.conn.our_state is not h11.DONE:
            self._stop_watching()
        elif self._closing is None:
            self._closing = self.loop.call_later(KEEP_ALIVE, self.timeout_keep_alive_handler)

    def _stop_watching(self) -> None:
        if self._closing is not None:
            self._closing.cancel()
            self._closing = None
