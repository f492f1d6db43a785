"""Transcriptions of the server: one at a time, in their own thread."""

from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from threading import Lock
from time import monotonic

from prometheus_client import Metric

from ov_specdec.api.body import Form
from ov_specdec.api.dialect import Served
from ov_specdec.engine.scheduler import FairQueue
from ov_specdec.engine.sequence import Cancelled
from ov_specdec.server.engine import STEP_TIMEOUT, InputKind, join_salt, stalled
from ov_specdec.server.metrics import Metrics
from ov_specdec.server.settings import Settings
from ov_specdec.server.stream import Stream
from ov_specdec.speech.audio import limit_ffmpeg
from ov_specdec.speech.segments import TranscriptionChunk
from ov_specdec.speech.transcriber import TranscriptionStream
from ov_specdec.speech_pipeline import SpeechPipeline


@dataclass(eq=False)
class Job:
    """A request whose recording waits or is being transcribed.

    tenant: has its turn, and cached prefixes of its own. stream: gets admission and chunks, or the
    error.
    """

    request: Form
    tenant: str | None
    stream: Stream[TranscriptionChunk]
    is_cancelled: bool = False
    transcription: TranscriptionStream | None = None

    def cancel(self) -> None:
        """End it within a pass. Thread-safe."""
        self.is_cancelled = True
        if self.transcription is not None:
            self.transcription.cancel()


class Transcriptions:
    """A speech model that serves tenants in turns, and requests of each in order of arrival.

    It implements `EngineClient`. A recording is decoded only when it is next, up to
    `max_audio_seconds`: small files may become large arrays.
    """

    input_kind: InputKind = "recordings"
    max_running = 1

    def __init__(self, pipeline: SpeechPipeline, settings: Settings) -> None:
        limit_ffmpeg(settings.max_audio_seconds)
        self.pipeline = pipeline
        names, most = settings.served_model_name, settings.max_request_tokens
        length = pipeline.main.runner.max_length
        self.model = Served(names, most, pipeline.tokenizer, "whisper", length)
        self.metrics = Metrics(settings.model_name)
        self._jobs = set[Job]()
        self._waiting = FairQueue[Job]()
        self._lock = Lock()
        """Protects `_waiting`."""
        self.metrics["num_requests_running"].set_function(
            lambda: sum(job.stream.admitted.is_set() for job in self._jobs)
        )
        self.metrics["num_requests_waiting"].set_function(self._waiting.__len__)
        self._max_seconds = settings.max_audio_seconds
        self._thread = ThreadPoolExecutor(1)
        self._block_began: float | None = None
        """Start time of the current block of a file."""

    @asynccontextmanager
    async def running(
        self, request: Form, tenant: str | None, stream: Stream[TranscriptionChunk]
    ) -> AsyncIterator[None]:
        """See `EngineClient`. The file of the request is closed at the end."""
        job = Job(request, tenant, stream)
        self._jobs.add(job)
        with self._lock:
            self._waiting.add(job)
        try:
            self._thread.submit(self._fill_next)
            yield
        finally:
            self._jobs.discard(job)
            job.cancel()
            with self._lock:
                if job in self._waiting:
                    self._waiting.remove(job)
            request.file.close()

    async def collect_metrics(self) -> list[Metric]:
        """Its metrics."""
        return list(self.metrics.registry.collect())

    async def check_health(self) -> None:
        """Raise `ApiError` unless models and decoding make progress."""
        began = self._block_began
        decoding = 0.0 if began is None else monotonic() - began
        if max(self.pipeline.step_seconds, decoding) > STEP_TIMEOUT:
            raise stalled()

    def close(self) -> None:
        """End all transcriptions, and free the models."""
        for job in list(self._jobs):
            job.cancel()
        self._thread.shutdown()
        self.pipeline.close()

    def _fill_next(self) -> None:
        with self._lock:
            job = self._waiting.next()
            if job is None:  # its client has left
                return
            self._waiting.take(job)
        job.stream.admit()
        try:
            self._transcribe(job)
        except Exception as error:
            job.stream.end(error)
        else:
            job.stream.end(None)

    def _transcribe(self, job: Job) -> None:
        """Transcribe in this thread; raises `Cancelled`, and errors of the request."""
        with self._open(job) as transcription:
            job.transcription = transcription
            if job.is_cancelled:  # before the transcription existed
                raise Cancelled
            for chunk in transcription:
                if chunk.stats is not None:
                    stats, is_cancelled = chunk.stats.generation, chunk.finish_reason == "cancelled"
                    self.metrics["generation_tokens"].inc(stats.generated_tokens)
                    self.metrics.ended(stats, None if is_cancelled else chunk.finish_reason)
                    if is_cancelled:
                        raise Cancelled
                job.stream.put(0, [chunk])

    def _open(self, job: Job) -> TranscriptionStream:
        """Decode a recording; raises `Cancelled` within a block if the job is cancelled."""
        options = job.request.options
        options["cache_salt"] = join_salt(job.tenant, options.get("cache_salt"))

        def begin_block() -> None:
            if job.is_cancelled:
                raise Cancelled
            self._block_began = monotonic()

        try:
            return self.pipeline.open_stream(
                job.request.file, options, self._max_seconds, begin_block
            )
        finally:
            self._block_began = None
