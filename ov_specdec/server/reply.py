"""Sends the answer of a request, whole or in pieces, and watches for disconnects."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from math import inf
from time import monotonic
from typing import Any

from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from ov_specdec.api.answer import Answer
from ov_specdec.api.body import GenerationBody
from ov_specdec.api.dialect import Framing, Generating, check_model
from ov_specdec.api.errors import ApiError, invalid
from ov_specdec.dialects import INPUTS
from ov_specdec.engine.sequence import Cancelled
from ov_specdec.results.chunks import Chunk
from ov_specdec.server.access import CLIENT_LEFT, Record
from ov_specdec.server.limits import RETRY_AFTER, Grow
from ov_specdec.server.service import Service
from ov_specdec.server.stream import Stream, run_in_thread, wait_for

Entered = AbstractAsyncContextManager[tuple[Any, Grow]]

MAX_UNREAD = 1024
"""Maximum unread chunks of a stream: more than network delays need, yet little memory. The socket
has its own buffers."""

PING_SECONDS = 15.0
"""The silence before a ping is sent, if there is one: less than the idle timeout of proxies."""


HEADERS = {"cache-control": "no-cache", "x-accel-buffering": "no"}  # nginx would buffer pieces


class Reply(Response):
    """A response that reads a request and runs its generations while it is sent.

    record: of the request, for the log. entered: reads the request, and has a slot for it. form: of
    its pieces.
    """

    answer: Answer[Any]
    stream: Stream[Any]

    def __init__(
        self, service: Service, record: Record, entered: Entered, post: Generating, form: Framing
    ) -> None:
        super().__init__()
        self.service = service
        self.record = record
        self.entered = entered
        self.post = post
        self.form = form
        self.deadline = record.arrived + (service.settings.request_timeout or inf)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run until the answer is sent, or the client disconnects or reads too slowly."""
        async with self.entered as (request, grow):
            self.record.user = request.user_name
            served = self.service.model
            check_model(request.model, served.names)
            if isinstance(request, GenerationBody):
                grow(request.num_choices, request.choices_per_prompt)
                if request.conversation_field and served.tokenizer.chat_template is None:
                    raise invalid(
                        request.conversation_field,
                        f"the model has no chat template: send a text to {INPUTS['text']}, or "
                        "start the server with --chat-template FILE",
                    )
            self.answer = self.post.answer(request, served.names[0], served.tokenizer)
            choices = self.record.outputs = self.answer.choices
            self.stream = Stream(len(choices), MAX_UNREAD if self.answer.is_streamed else inf)
            self.service.streams.add(self.stream)
            await self._run_for_client(self._run(scope, receive, send), receive)

    async def _run_for_client(self, work: Coroutine[Any, Any, None], receive: Receive) -> None:
        """Run the work of the request, until the client disconnects or reads too slowly."""

        async def client_leaves() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass

        watched = (work, client_leaves(), self.stream.overflow.wait())
        working, leaving, _ = tasks = [asyncio.ensure_future(each) for each in watched]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                working.result()
            elif leaving.done():
                self.record.status = CLIENT_LEFT
            else:
                # The client would not read an error event either: close the connection.
                self.record.error = "the client reads too slowly"
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = self.answer.request, self.record.tenant, self.stream
        has_prompt = bool(self.answer.choices)
        try:
            async with self.service.engine.running(*asked) if has_prompt else nullcontext():
                await self._wait_turn()
                if self.answer.is_streamed:  # the head comes at admission
                    headers = {"content-type": f"{self.form.media_type}; charset=utf-8", **HEADERS}
                    await StreamingResponse(self._pieces(), headers=headers).stream_response(send)
                    return
                while pieces := await self.stream.next(self.deadline):
                    for piece in pieces:
                        self.answer.note(*piece)
                # Log-probabilities of a long prompt take time, so do not block the event loop.
                whole = await run_in_thread(partial(_whole, self.answer))
                await whole(scope, receive, send)
        except Exception as error:
            raise self._explain(error) from error

    async def _wait_turn(self) -> None:
        """Wait until the request runs; `ApiError` if the queue takes too long."""
        came, most = monotonic(), self.service.settings.queue_timeout
        try:
            await wait_for(self.stream.admitted, min(came + most, self.deadline))
        except asyncio.TimeoutError as error:
            if self.deadline < came + most:
                raise
            raise ApiError(
                503,
                f"the request waited {most:g} s in the queue: try again later",
                code="queue_timeout",
                retry_after=RETRY_AFTER,
            ) from error
        self.record.queued = monotonic() - came

    async def _pieces(self) -> AsyncIterator[bytes]:
        """The pieces of an answer, and pings between them; an error ends them."""
        try:
            yield b"".join(self.answer.begin())
            while True:
                try:
                    ping = monotonic() + PING_SECONDS
                    pieces = await self.stream.next(min(ping, self.deadline))
                except asyncio.TimeoutError:
                    if monotonic() >= self.deadline:
                        raise
                    yield self.form.ping
                    continue
                if not pieces:
                    break
                for index, piece in pieces:
                    make = partial(self.answer.add, index, piece)
                    is_long = isinstance(piece, Chunk) and piece.prompt_logprobs
                    if events := await run_in_thread(make) if is_long else make():
                        yield b"".join(events)
            yield b"".join(self.answer.end())
        except Exception as error:
            yield self.answer.fail(self._explain(error))

    def _explain(self, error: Exception) -> ApiError:
        """The answer for an error of the request, which is also logged."""
        if isinstance(error, asyncio.TimeoutError):
            seconds = self.service.settings.request_timeout
            message = f"the answer was not finished within {seconds:g} s"
            error = ApiError(504, message, code="timeout")
        elif isinstance(error, Cancelled):
            error = ApiError(503, "the request was cancelled by the server", code="cancelled")
        return self.record.fail(error, self.answer.request.names)


def _whole(answer: Answer[Any]) -> Response:
    """The response of an answer that is not streamed."""
    body = answer.whole()
    if isinstance(body, str):
        return PlainTextResponse(body, media_type=answer.media_type)
    return JSONResponse(body)
