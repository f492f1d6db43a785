"""Connections of clients: HTTP/1.1 that gives up clients that neither send nor read."""

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

KEEP_ALIVE = 30
"""Seconds that an idle connection stays open: longer than clients keep theirs, which is 5 for httpx
and OpenAI's client. Otherwise the server could close a connection just as a request arrives.
Uvicorn closes those that have had a request, this module all others."""

READ_SECONDS = 30.0
MIN_READ = 65_536
"""A client has to read so many bytes of a waiting answer in this time, or all that remain."""


MAX_SMALL, SMALL = 1000, 16
"""A body may have so many chunks, or more if they have so many bytes on average: h11 needs as long
for a chunk of a byte as for one of many."""


class Parser(h11.Connection):
    """Parses requests; refuses a body of many small chunks, which would stop all other requests."""

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

    The head of a request has to arrive in `KEEP_ALIVE` seconds. An answer that the client does not
    read is dropped: uvicorn would keep it as long as the connection lasts.
    """

    _arriving: asyncio.TimerHandle | None = None
    _reading: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """A client has connected."""
        super().connection_made(transport)
        self.conn = Parser(h11.SERVER)
        self._watch_head()

    def data_received(self, data: bytes) -> None:
        """A client has sent something."""
        super().data_received(data)
        self._watch_head()

    def pause_writing(self) -> None:
        """More than a socket takes has to be sent."""
        super().pause_writing()
        self._watch_reader()

    def resume_writing(self) -> None:
        """Most of it was sent."""
        super().resume_writing()
        _cancel(self._reading)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended."""
        for timer in (self._arriving, self._reading):
            _cancel(timer)
        super().connection_lost(exc)

    def _watch_head(self) -> None:
        """Close the connection if the head of a request does not arrive in time."""
        if self.conn.their_state is not h11.IDLE:
            _cancel(self._arriving)
            self._arriving = None
        elif self._arriving is None:
            self._arriving = self.loop.call_later(KEEP_ALIVE, self.timeout_keep_alive_handler)

    def _watch_reader(self) -> None:
        """Drop the answer if the client does not read enough of it in time."""
        unread = self.transport.get_write_buffer_size()

        def check() -> None:
            if unread - self.transport.get_write_buffer_size() < MIN_READ:
                self.transport.abort()
            else:
                self._watch_reader()

        self._reading = self.loop.call_later(READ_SECONDS, check)


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
