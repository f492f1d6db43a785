"""Sends the answer of a request, whole or as server-sent events, and watches for disconnects."""

import asyncio
import math
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import Any, TypeVar

from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from ov_specdec.engine.sequence import Cancelled
from ov_specdec.openai.audio import StreamedTranscription
from ov_specdec.openai.completions import StreamedCompletion
from ov_specdec.openai.errors import ApiError
from ov_specdec.openai.responses import StreamedResponse
from ov_specdec.options.model import Endpoint
from ov_specdec.results.chunks import Chunk, ResultBuilder
from ov_specdec.server.access import CLIENT_LEFT, Record
from ov_specdec.server.service import Service
from ov_specdec.server.stream import Stream, run_in_thread

T = TypeVar("T")

Writer = StreamedCompletion | StreamedResponse | StreamedTranscription

PING = b": ping\n\n"
PING_SECONDS = 15.0
"""A comment between events, and the silence in seconds before it is sent: less than the idle
timeout of proxies."""

HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # nginx would buffer events
]


@dataclass(frozen=True)
class Task:
    """What a request asks for.

    writer: makes the answer. outputs: of its generations. is_streamed: whether it is answered with
    events. running: runs the generations, which fill a stream. media_type: of an answer that is a
    text.
    """

    writer: Writer
    outputs: Sequence[ResultBuilder]
    is_streamed: bool
    running: Callable[[Stream[Any]], AbstractAsyncContextManager[None]]
    endpoint: Endpoint | None = None
    media_type: str | None = None

    def whole(self) -> Response:
        """The response of an answer that is not streamed."""
        body = self.writer.whole()
        if isinstance(body, str):
            return PlainTextResponse(body, media_type=self.media_type)
        return JSONResponse(body.model_dump())


class Reply(Response):
    """A response that reads a request and runs its generations while it is sent.

    begin: reads the request, once the queue has room; it gets the function of `Slots.entered`.
    record: of the request, for the log.
    """

    def __init__(
        self,
        service: Service,
        begin: Callable[[Callable[[int, int], None]], AbstractAsyncContextManager[Task]],
        record: Record,
    ) -> None:
        super().__init__()
        self.service = service
        self.begin = begin
        self.record = record

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run until the answer is sent, or the client disconnects or reads too slowly."""
        service = self.service
        with service.entered(self.record.tenant) as grow:
            async with self.begin(grow) as task:
                limit = service.settings.max_unread if task.is_streamed else None
                stream = Stream[Any](len(task.outputs), limit)
                run = self._run(task, stream, scope, receive, send)
                await run_for_client(run, stream.overflow, receive, self.record)

    async def _run(
        self, task: Task, stream: Stream[Any], scope: Scope, receive: Receive, send: Send
    ) -> None:
        service, record, sender = self.service, self.record, Sender(send)
        timeout = service.settings.request_timeout
        deadline = None if timeout is None else record.arrived + timeout
        record.outputs = task.outputs
        try:
            async with task.running(stream):
                await service.turn(stream, deadline)
                if task.is_streamed:  # the head comes at admission
                    await sender.begin(task.writer.begin())
                while (piece := await sender.next(stream, deadline)) is not None:
                    await self._take(task, sender, *piece)
                if task.is_streamed:
                    await sender.events(task.writer.end(), more=False)
                else:
                    # Log-probabilities of a long prompt take time, so do not block the event loop.
                    whole = await run_in_thread(task.whole)
                    await whole(scope, receive, send)
        except Exception as error:
            failure = self._explain(error, task.endpoint)
            if not sender.has_begun:
                raise failure from error
            await sender.events([task.writer.fail(failure)], more=False)

    def _explain(self, error: Exception, endpoint: Endpoint | None) -> ApiError:
        """The answer for an error of a request, which is also logged."""
        if isinstance(error, asyncio.TimeoutError):
            seconds = self.service.settings.request_timeout
            message = f"the answer was not finished within {seconds:g} s"
            error = ApiError(504, message, code="timeout")
        elif isinstance(error, Cancelled):
            error = ApiError(503, "the request was cancelled by the server", code="cancelled")
        return self.record.fail(error, endpoint)

    async def _take(self, task: Task, sender: "Sender", index: int, chunk: Any) -> None:
        """Count the next chunk of a generation, and send its events."""
        parts: Sequence[Chunk] = [chunk] if isinstance(chunk, Chunk) else chunk.chunks
        for part in parts:
            self.service.metrics.observe(self.record, part, task.outputs[index])
        if not task.is_streamed:
            task.writer.note(index, chunk)
        elif any(part.prompt_logprobs for part in parts):  # of a prompt that may be long
            await sender.events(await run_in_thread(partial(task.writer.add, index, chunk)))
        else:
            await sender.events(task.writer.add(index, chunk))


async def run_for_client(
    work: Coroutine[Any, Any, None], overflow: asyncio.Event, receive: Receive, record: Record
) -> None:
    """Run the work of a request, until the client disconnects or reads too slowly.

    overflow: set when the client reads too slowly.
    """
    working = asyncio.ensure_future(work)

    async def client_leaves() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    leaving = asyncio.ensure_future(client_leaves())
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


class Sender:
    """Sends events after the head of the response."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.has_begun = False

    async def begin(self, events: Sequence[bytes]) -> None:
        """Send the head, and the first events."""
        self.has_begun = True
        await self._send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        await self.events(events)

    async def events(self, events: Sequence[bytes], *, more: bool = True) -> None:
        """Send events, if there are any. more: whether others follow."""
        if events or not more:
            body = b"".join(events)
            await self._send({"type": "http.response.body", "body": body, "more_body": more})

    async def next(self, stream: Stream[T], deadline: float | None) -> tuple[int, T] | None:
        """The next piece of a stream: see `Stream.next`. Sends pings meanwhile, after the head."""
        while True:
            until = monotonic() + PING_SECONDS if self.has_begun else math.inf
            try:
                return await stream.next(until if deadline is None else min(deadline, until))
            except asyncio.TimeoutError:
                if deadline is not None and monotonic() >= deadline:
                    raise
                await self.events([PING])
