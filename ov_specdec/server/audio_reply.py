"""Sends a transcription: whole, or as server-sent events."""

from collections.abc import Awaitable, Callable
from typing import BinaryIO

from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from ov_specdec.openai.audio import AudioAsk
from ov_specdec.openai.transcriptions import (
    MEDIA_TYPES,
    StreamedTranscription,
    make_transcription,
)
from ov_specdec.server.access import Record
from ov_specdec.server.queue import Place
from ov_specdec.server.reply import Sender, explain, run_for_client
from ov_specdec.server.request_metrics import Clock
from ov_specdec.server.service import Service
from ov_specdec.server.stream import Stream
from ov_specdec.server.threads import run_in_thread
from ov_specdec.server.transcriptions import Job
from ov_specdec.speech.segments import TranscriptionChunk, collect


class AudioReply(Response):
    """A response that reads a recording and transcribes it while it is sent.

    read: reads the form, once the queue has room. record: of the request, for the log.
    """

    def __init__(
        self,
        service: Service,
        read: Callable[[], Awaitable[tuple[AudioAsk, BinaryIO]]],
        record: Record,
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
            ask, recording = await self.read()
            with recording:
                limit = service.settings.max_unread if ask.stream else None
                stream = Stream[TranscriptionChunk](1, limit)
                job = Job(ask, recording, self.record.tenant, stream)
                run = self._run(job, place, scope, receive, send)
                await run_for_client(run, stream.overflow, receive, self.record)

    async def _run(
        self, job: Job, place: Place, scope: Scope, receive: Receive, send: Send
    ) -> None:
        service, sender, events = self.service, Sender(send), StreamedTranscription()
        deadline = service.deadline(self.record.began)
        try:
            speech = service.speech
            await service.turn(place, deadline)
            with speech.running(job):
                if job.ask.stream:
                    await sender.begin()
                chunks = []
                while (piece := await sender.next(job.stream, deadline)) is not None:
                    chunks.append(piece[1])
                    self._note(piece[1])
                    if job.ask.stream:
                        await sender.event(events.add(piece[1]))
                if job.ask.stream:
                    await sender.end()
                else:
                    whole = await run_in_thread(lambda: _whole(job.ask, chunks))
                    await whole(scope, receive, send)
        except Exception as error:
            failure = explain(error, service, self.record)
            await sender.fail(failure, events.fail, scope, receive)

    def _note(self, chunk: TranscriptionChunk) -> None:
        for piece in chunk.pieces:
            self.record.note(piece)
        self.record.finish_reason = chunk.finish_reason
        has_ended = chunk.finish_reason not in (None, "cancelled")
        self.clock.note(0, has_tokens=bool(chunk.pieces), has_ended=has_ended)


def _whole(ask: AudioAsk, chunks: list[TranscriptionChunk]) -> Response:
    body = make_transcription(ask, collect(chunks))
    if isinstance(body, str):
        return PlainTextResponse(body, media_type=MEDIA_TYPES[ask.form])
    return JSONResponse(body.model_dump())
