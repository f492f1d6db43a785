"""Sends the answer of a request, whole or as server-sent events, and watches for disconnects."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import Any

from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from ov_specdec.engine.sequence import Cancelled
from ov_specdec.openai.audio import StreamedTranscription
from ov_specdec.openai.completions import StreamedCompletion
from ov_specdec.openai.errors import ApiError
from ov_specdec.openai.responses import StreamedResponse
from ov_specdec.results.chunks import Chunk, ResultBuilder
from ov_specdec.server.access import CLIENT_LEFT, Record
from ov_specdec.server.service import Service
from ov_specdec.server.stream import Stream, run_in_thread

Writer = StreamedCompletion | StreamedResponse | StreamedTranscription

PING = b": ping\n\n"
PING_SECONDS = 15.0
"""A comment between events, and the silence in seconds before it is sent: less than the idle
timeout of proxies."""

HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
    "x-accel-buffering": "no",  # nginx would buffer events
}


@dataclass(frozen=True)
class Task:
    """What a request asks for.

    writer: makes the answer. outputs: of its generations. is_streamed: whether it is answered with
    events. running: runs the generations, which fill a stream. names: see `Ask`. media_type: of an
    answer that is a text.
    """

    writer: Writer
    outputs: Sequence[ResultBuilder]
    is_streamed: bool
    running: Callable[[Stream[Any]], AbstractAsyncContextManager[None]]
    names: Mapping[str, str] = field(default_factory=dict)
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
        most = self.service.settings.max_unread
        with self.service.entered(self.record.tenant) as grow:
            async with self.begin(grow) as task:
                stream = Stream[Any](len(task.outputs), most if task.is_streamed else None)
                await run_for_client(
                    self._run(task, stream, scope, receive, send),
                    stream.overflow,
                    receive,
                    self.record,
                )

    async def _run(
        self, task: Task, stream: Stream[Any], scope: Scope, receive: Receive, send: Send
    ) -> None:
        timeout = self.service.settings.request_timeout
        deadline = None if timeout is None else self.record.arrived + timeout
        self.record.outputs = task.outputs
        try:
            async with task.running(stream):
                await self.service.turn(stream, deadline)
                if task.is_streamed:  # the head comes at admission
                    events = self._events(task, stream, deadline)
                    await StreamingResponse(events, headers=HEADERS).stream_response(send)
                    return
                while (piece := await stream.next(deadline)) is not None:
                    self._observe(task, *piece)
                    task.writer.note(*piece)
                # Log-probabilities of a long prompt take time, so do not block the event loop.
                whole = await run_in_thread(task.whole)
                await whole(scope, receive, send)
        except Exception as error:
            raise self._explain(error, task.names) from error

    async def _events(
        self, task: Task, stream: Stream[Any], deadline: float | None
    ) -> AsyncIterator[bytes]:
        """The events of an answer, and pings between them; an error ends them."""
        try:
            yield b"".join(task.writer.begin())
            while True:
                ping = monotonic() + PING_SECONDS
                try:
                    piece = await stream.next(ping if deadline is None else min(ping, deadline))
                except asyncio.TimeoutError:
                    if deadline is not None and monotonic() >= deadline:
                        raise
                    yield PING
                    continue
                if piece is None:
                    break
                make = partial(task.writer.add, *piece)
                is_long = any(chunk.prompt_logprobs for chunk in self._observe(task, *piece))
                if events := await run_in_thread(make) if is_long else make():
                    yield b"".join(events)
            yield b"".join(task.writer.end())
        except Exception as error:
            yield task.writer.fail(self._explain(error, task.names))

    def _observe(self, task: Task, index: int, piece: Any) -> Sequence[Chunk]:
        """Count the next piece of a generation; its chunks."""
        chunks: Sequence[Chunk] = [piece] if isinstance(piece, Chunk) else piece.chunks
        for chunk in chunks:
            self.service.metrics.observe(self.record, chunk, task.outputs[index])
        return chunks

    def _explain(self, error: Exception, others: Mapping[str, str]) -> ApiError:
        """The answer for an error of a request, which is also logged."""
        if isinstance(error, asyncio.TimeoutError):
            seconds = self.service.settings.request_timeout
            message = f"the answer was not finished within {seconds:g} s"
            error = ApiError(504, message, code="timeout")
        elif isinstance(error, Cancelled):
            error = ApiError(503, "the request was cancelled by the server", code="cancelled")
        return self.record.fail(error, others)


async def run_for_client(
    work: Coroutine[Any, Any, None], overflow: asyncio.Event, receive: Receive, record: Record
) -> None:
    """Run the work of a request, until the client disconnects or reads too slowly.

    overflow: set when the client reads too slowly.
    """

    async def client_leaves() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    watched = (work, client_leaves(), overflow.wait())
    working, leaving, _ = tasks = [asyncio.ensure_future(each) for each in watched]
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
