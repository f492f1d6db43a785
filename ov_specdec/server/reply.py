"""Sends the answer of a request: whole, or as server-sent events; and watches for the client."""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from ov_specdec.chunks import Chunk, GenerationResult, collect
from ov_specdec.openai import Answer, ApiError, from_exception, make_body, make_stream
from ov_specdec.openai.responses import StreamedResponse
from ov_specdec.openai.streaming import StreamedCompletion
from ov_specdec.scheduling import Cancelled
from ov_specdec.server.access import Record, error_response
from ov_specdec.server.service import Service
from ov_specdec.server.stream import Stream

log = logging.getLogger("ov_specdec.server")

CLIENT_LEFT = 499
"""Status in the log of a request whose client did not wait; as nginx has it."""

Events = StreamedCompletion | StreamedResponse

HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # nginx would hold events back
]


class Reply(Response):
    """A response that runs the generations of a request while it is sent.

    tenant: whose cached prefixes may be used. record: of the request, for the log.
    """

    def __init__(
        self, service: Service, answer: Answer, tenant: str | None, record: Record
    ) -> None:
        super().__init__()
        self.service = service
        self.answer = answer
        self.tenant = tenant
        self.record = record
        timeout = service.settings.request_timeout
        self.deadline = None if timeout is None else record.began + timeout

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run it, until it is sent, or the client has left or does not read what is sent."""
        ask, settings = self.answer.ask, self.service.settings
        num_choices = ask.num_choices
        stream = Stream(num_choices, settings.max_unread if ask.stream else None)
        working = asyncio.ensure_future(self._run(stream, num_choices, scope, receive, send))
        leaving = asyncio.ensure_future(_client_leaves(receive))
        overflow = asyncio.ensure_future(stream.overflow.wait())
        tasks = (working, leaving, overflow)
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                working.result()
            elif leaving.done():
                self.record.status = CLIENT_LEFT
            else:
                # An event that says so would not be read either: the connection is closed.
                self.record.error = "the client reads too slowly"
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(
        self, stream: Stream, num_choices: int, scope: Scope, receive: Receive, send: Send
    ) -> None:
        service = self.service
        sender, events = _Sender(send), make_stream(self.answer)
        try:
            with service.admitted(num_choices):
                async with service.running(self.answer.ask, self.tenant, stream):
                    if self.answer.ask.stream:
                        await self._send_events(stream, sender, events)
                    else:
                        body = await self._collect(stream, num_choices)
                        await JSONResponse(body)(scope, receive, send)
        except Exception as error:
            failure = self._explain(error)
            self.record.status, self.record.error = failure.status, failure.message
            if sender.has_begun:
                await sender.event(events.fail(failure))
                await sender.end()
            else:
                await error_response(failure)(scope, receive, send)

    async def _collect(self, stream: Stream, num_choices: int) -> dict[str, Any]:
        chunks: list[list[Chunk]] = [[] for _ in range(num_choices)]
        async for index, chunk in self._chunks(stream):
            chunks[index].append(chunk)
        results: list[GenerationResult] = [collect(each) for each in chunks]
        return make_body(self.answer, results)

    async def _send_events(self, stream: Stream, sender: "_Sender", events: Events) -> None:
        async for index, chunk in self._chunks(stream):
            if not sender.has_begun:
                await sender.begin()
                await sender.event(b"".join(events.begin()))
            await sender.event(b"".join(events.add(index, chunk)))
        await sender.event(b"".join(events.end()))
        await sender.end()

    async def _chunks(self, stream: Stream) -> AsyncIterator[tuple[int, Chunk]]:
        while (piece := await stream.next(self.deadline)) is not None:
            self.record.note(piece[1])
            yield piece

    def _explain(self, error: Exception) -> ApiError:
        if isinstance(error, asyncio.TimeoutError):
            seconds = self.service.settings.request_timeout
            return ApiError(
                504, f"the answer was not finished within {seconds:g} s", code="timeout"
            )
        if isinstance(error, Cancelled):
            return ApiError(503, "the request was cancelled by the server", code="cancelled")
        failure = from_exception(error, self.record.id)
        if failure.status == 500:
            log.error("request %s has failed", self.record.id, exc_info=error)
        return failure


class _Sender:
    """Sends events, after the head of the response."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.has_begun = False

    async def begin(self) -> None:
        self.has_begun = True
        await self._send({"type": "http.response.start", "status": 200, "headers": HEADERS})

    async def event(self, event: bytes) -> None:
        if event:
            await self._send({"type": "http.response.body", "body": event, "more_body": True})

    async def end(self) -> None:
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})


async def _client_leaves(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
