"""Sends the answer of a request, whole or as server-sent events, and watches for disconnects."""

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from functools import partial
from time import monotonic
from typing import Any, TypeVar

from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from ov_specdec.chunks import Chunk, GenerationResult, collect
from ov_specdec.description import Endpoint
from ov_specdec.engine import Cancelled
from ov_specdec.openai import Answer, ApiError, Ask, from_exception, make_body, make_stream
from ov_specdec.openai.responses import StreamedResponse
from ov_specdec.openai.streaming import StreamedCompletion
from ov_specdec.server.access import CLIENT_LEFT, Record, error_response
from ov_specdec.server.queue import Place
from ov_specdec.server.request_metrics import Clock
from ov_specdec.server.service import Service
from ov_specdec.server.stream import Stream
from ov_specdec.server.threads import run_in_thread
from ov_specdec.server.work import reject_oversized

log = logging.getLogger("ov_specdec.server")

T = TypeVar("T")

Events = StreamedCompletion | StreamedResponse

PING = b": ping\n\n"
PING_SECONDS = 15.0
"""A comment between events, and the silence in seconds before it is sent: less than the idle
timeout of proxies."""

HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # nginx would buffer events
]


class Reply(Response):
    """A response that reads a request and runs its generations while it is sent.

    read: reads the request, once the queue has room. record: of the request, for the log.
    """

    def __init__(
        self, service: Service, read: Callable[[], Awaitable[Ask]], record: Record
    ) -> None:
        super().__init__()
        self.service = service
        self.read = read
        self.record = record
        self.clock = Clock(service.metrics, record.began)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run until the answer is sent, or the client disconnects or reads too slowly."""
        service = self.service
        with service.entered(self.record.tenant) as place:
            ask = await self.read()
            most = service.settings.max_request_tokens
            reject_oversized(ask, service.engine.max_length, most)
            place.grow(ask.num_choices, ask.n)
            answer = service.answer(ask)
            stream = Stream[Chunk](
                ask.num_choices, service.settings.max_unread if ask.stream else None
            )
            run = self._run(answer, place, stream, scope, receive, send)
            await run_for_client(run, stream.overflow, receive, self.record)

    async def _run(
        self,
        answer: Answer,
        place: Place,
        stream: Stream[Chunk],
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        service, record = self.service, self.record
        sender, events = Sender(send), make_stream(answer)
        deadline = service.deadline(record.began)
        turn = partial(service.turn, place, deadline)
        try:
            async with service.running(answer.ask, record.tenant, stream, turn):
                pieces = self._pieces(stream, sender, deadline)
                if answer.ask.stream:
                    await _send_events(pieces, sender, events)
                else:
                    await (await _collect(answer, pieces))(scope, receive, send)
        except Exception as error:
            failure = explain(error, service, record, answer.ask.endpoint)
            await sender.fail(failure, events.fail, scope, receive)

    async def _pieces(
        self, stream: Stream[Chunk], sender: "Sender", deadline: float | None
    ) -> AsyncIterator[tuple[int, Chunk]]:
        while (piece := await sender.next(stream, deadline)) is not None:
            index, chunk = piece
            self.record.note(chunk)
            has_ended = chunk.finish_reason is not None
            self.clock.note(index, has_tokens=bool(chunk.token_ids), has_ended=has_ended)
            yield piece


async def _collect(answer: Answer, pieces: AsyncIterator[tuple[int, Chunk]]) -> JSONResponse:
    """An answer that is sent whole."""
    chunks: list[list[Chunk]] = [[] for _ in range(answer.ask.num_choices)]
    async for index, chunk in pieces:
        chunks[index].append(chunk)
    results: list[GenerationResult] = [collect(each) for each in chunks]
    # Log-probabilities of a long prompt take time, so do not block the event loop.
    return await run_in_thread(lambda: JSONResponse(make_body(answer, results).model_dump()))


async def _send_events(
    pieces: AsyncIterator[tuple[int, Chunk]], sender: "Sender", events: Events
) -> None:
    """Send an answer as it arrives; the head comes at admission."""
    await sender.begin()
    await sender.event(b"".join(events.begin()))
    async for index, chunk in pieces:
        await sender.event(await _describe(events, index, chunk))
    await sender.event(b"".join(events.end()))
    await sender.end()


async def _describe(events: Events, index: int, chunk: Chunk) -> bytes:
    """The events of a chunk, made in a thread if they describe a prompt, which may be long."""
    if chunk.prompt_logprobs:
        return b"".join(await run_in_thread(lambda: events.add(index, chunk)))
    return b"".join(events.add(index, chunk))


async def run_for_client(
    work: Coroutine[Any, Any, None], overflow: asyncio.Event, receive: Receive, record: Record
) -> None:
    """Run the work of a request, until the client disconnects or reads too slowly.

    overflow: set when the client reads too slowly.
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
            # The client would not read an error event either: close the connection.
            record.error = "the client reads too slowly"
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def explain(
    error: Exception, service: Service, record: Record, endpoint: Endpoint | None = None
) -> ApiError:
    """The answer for an error of a request, which is also logged."""
    if isinstance(error, asyncio.TimeoutError):
        seconds = service.settings.request_timeout
        failure = ApiError(504, f"the answer was not finished within {seconds:g} s", code="timeout")
    elif isinstance(error, Cancelled):
        failure = ApiError(503, "the request was cancelled by the server", code="cancelled")
    else:
        failure = from_exception(error, record.id, endpoint)
        if failure.status == 500:
            log.error("request %s has failed", record.id, exc_info=error)
    record.fail(failure)
    return failure


class Sender:
    """Sends events after the head of the response."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.has_begun = False

    async def begin(self) -> None:
        """Send the head."""
        self.has_begun = True
        await self._send({"type": "http.response.start", "status": 200, "headers": HEADERS})

    async def event(self, event: bytes) -> None:
        """Send an event unless it is empty."""
        if event:
            await self._send({"type": "http.response.body", "body": event, "more_body": True})

    async def next(self, stream: Stream[T], deadline: float | None) -> tuple[int, T] | None:
        """The next piece of a stream: see `Stream.next`. Sends pings meanwhile, after the head."""
        while True:
            until = monotonic() + PING_SECONDS if self.has_begun else math.inf
            try:
                return await stream.next(until if deadline is None else min(deadline, until))
            except asyncio.TimeoutError:
                if deadline is not None and monotonic() >= deadline:
                    raise
                await self.event(PING)

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
        """Send an error: as the last event if the stream has begun, else as the response."""
        if self.has_begun:
            await self.event(make_event(failure))
            await self.end()
        else:
            await error_response(failure)(scope, receive, self._send)


async def _client_leaves(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
