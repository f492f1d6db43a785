"""Sends a transcription: whole, or as server-sent events."""

from typing import BinaryIO

from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from ov_specdec.openai.audio import MEDIA_TYPES, AudioAsk, StreamedTranscription, make_transcription
from ov_specdec.server.access import Record
from ov_specdec.server.reply import Sender, explain, run_for_client
from ov_specdec.server.service import Service
from ov_specdec.server.stream import Stream
from ov_specdec.server.transcriptions import Job
from ov_specdec.speech.segments import TranscriptionChunk, collect


class AudioReply(Response):
    """A response that transcribes a recording while it is sent. record: of the request."""

    def __init__(
        self, service: Service, ask: AudioAsk, recording: BinaryIO, record: Record
    ) -> None:
        super().__init__()
        self.service = service
        self.ask = ask
        self.recording = recording
        self.record = record
        timeout = service.settings.request_timeout
        self.deadline = None if timeout is None else record.began + timeout

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run it, until it is sent, or the client has left or does not read what is sent."""
        limit = self.service.settings.max_unread if self.ask.stream else None
        stream = Stream[TranscriptionChunk](1, limit)
        work = self._run(stream, scope, receive, send)
        await run_for_client(work, stream.overflow, receive, self.record)

    async def _run(
        self, stream: Stream[TranscriptionChunk], scope: Scope, receive: Receive, send: Send
    ) -> None:
        service, sender, events = self.service, Sender(send), StreamedTranscription()
        try:
            speech = service.speech
            job = Job(self.ask, self.recording, self.record.tenant, stream)
            with service.admitted(1), speech.running(job):
                chunks = []
                while (piece := await stream.next(self.deadline)) is not None:
                    chunks.append(piece[1])
                    self._note(piece[1])
                    if self.ask.stream:
                        if not sender.has_begun:
                            await sender.begin()
                        await sender.event(events.add(piece[1]))
                if self.ask.stream:
                    await sender.end()
                else:
                    await self._whole(chunks)(scope, receive, send)
        except Exception as error:
            failure = explain(error, service, self.record)
            await sender.fail(failure, events.fail, scope, receive)

    def _whole(self, chunks: list[TranscriptionChunk]) -> Response:
        body = make_transcription(self.ask, collect(chunks))
        if isinstance(body, str):
            return PlainTextResponse(body, media_type=MEDIA_TYPES[self.ask.form])
        return JSONResponse(body)

    def _note(self, chunk: TranscriptionChunk) -> None:
        for piece in chunk.pieces:
            self.record.note(piece)
        self.record.finish_reason = chunk.finish_reason
