"""Sends the answer of a request: whole, or as server-sent events; and watches for the client."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from ov_specdec.chunks import Chunk, GenerationResult, collect
from ov_specdec.engine import Cancelled
from ov_specdec.openai import Answer, ApiError, from_exception, make_body, make_stream
from ov_specdec.openai.responses import StreamedResponse
from ov_specdec.openai.streaming import StreamedCompletion
from ov_specdec.server.access import CLIENT_LEFT, Record, error_response
from ov_specdec.server.service import Service
from ov_specdec.server.stream import Stream

log = logging.getLogger("ov_specdec.server")

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
        stream = Stream[Chunk](num_choices, settings.max_unread if ask.stream else None)
        work = self._run(stream, num_choices, scope, receive, send)
        await run_for_client(work, stream.overflow, receive, self.record)

    async def _run(
        self, stream: Stream[Chunk], num_choices: int, scope: Scope, receive: Receive, send: Send
    ) -> None:
        service = self.service
        sender, events = Sender(send), make_stream(self.answer)
        try:
            with service.admitted(num_choices, self.answer.ask.n):
                async with service.running(self.answer.ask, self.tenant, stream):
                    if self.answer.ask.stream:
                        await self._send_events(stream, sender, events)
                    else:
                        body = await self._collect(stream, num_choices)
                        await JSONResponse(body)(scope, receive, send)
        except Exception as error:
            failure = explain(error, service, self.record)
            await sender.fail(failure, events.fail, scope, receive)

    async def _collect(self, stream: Stream[Chunk], num_choices: int) -> dict[str, Any]:
        chunks: list[list[Chunk]] = [[] for _ in range(num_choices)]
        async for index, chunk in self._chunks(stream):
            chunks[index].append(chunk)
        results: list[GenerationResult] = [collect(each) for each in chunks]
        # Log-probabilities of a long prompt take time, in which others are to be answered.
        return await asyncio.to_thread(make_body, self.answer, results)

    async def _send_events(self, stream: Stream[Chunk], sender: "Sender", events: Events) -> None:
        async for index, chunk in self._chunks(stream):
            if not sender.has_begun:
                await sender.begin()
                await sender.event(b"".join(events.begin()))
            await sender.event(b"".join(events.add(index, chunk)))
        await sender.event(b"".join(events.end()))
        await sender.end()

    async def _chunks(self, stream: Stream[Chunk]) -> AsyncIterator[tuple[int, Chunk]]:
        while (piece := await stream.next(self.deadline)) is not None:
            self.record.note(piece[1])
            yield piece


async def run_for_client(
    work: Coroutine[Any, Any, None], overflow: asyncio.Event, receive: Receive, record: Record
) -> None:
    """Run what answers a request, until the client leaves or falls too far behind.

    overflow: set when it does.
    """
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_client_leaves(receive))
    overflowing = asyncio.ensure_future(overflow.wait())
    tasks = (working, leaving, overflowing)
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
        elif leaving.done():
            record.status = CLIENT_LEFT
        else:
            # An event that says so would not be read either: the connection is closed.
            record.error = "the client reads too slowly"
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def explain(error: Exception, service: Service, record: Record) -> ApiError:
    """What an error of a request comes to; the log has it too."""
    if isinstance(error, asyncio.TimeoutError):
        seconds = service.settings.request_timeout
        failure = ApiError(504, f"the answer was not finished within {seconds:g} s", code="timeout")
    elif isinstance(error, Cancelled):
        failure = ApiError(503, "the request was cancelled by the server", code="cancelled")
    else:
        failure = from_exception(error, record.id)
        if failure.status == 500:
            log.error("request %s has failed", record.id, exc_info=error)
    record.status, record.error = failure.status, failure.message
    return failure


class Sender:
    """Sends events, after the head of the response."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.has_begun = False

    async def begin(self) -> None:
        """Send the head."""
        self.has_begun = True
        await self._send({"type": "http.response.start", "status": 200, "headers": HEADERS})

    async def event(self, event: bytes) -> None:
        """Send an event; nothing where it is empty."""
        if event:
            await self._send({"type": "http.response.body", "body": event, "more_body": True})

    async def end(self) -> None:
        """Send the end."""
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def fail(
        self,
        failure: ApiError,
        make_event: Callable[[ApiError], bytes],
        scope: Scope,
        receive: Receive,
    ) -> None:
        """Say what has failed: in a last event where events have begun, else as the response."""
        if self.has_begun:
            await self.event(make_event(failure))
            await self.end()
        else:
            await error_response(failure)(scope, receive, self._send)


async def _client_leaves(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
