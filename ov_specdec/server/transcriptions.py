"""Transcriptions of the server: one at a time, in their own thread."""

from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from threading import Lock
from time import monotonic
from typing import BinaryIO

from prometheus_client import Metric

from ov_specdec.engine.fair_queue import FairQueue
from ov_specdec.engine.sequence import Cancelled
from ov_specdec.openai.audio import AudioAsk
from ov_specdec.server.engine import join_salt, stalled
from ov_specdec.server.metrics import Metrics
from ov_specdec.server.settings import Settings
from ov_specdec.server.stream import Stream
from ov_specdec.speech.audio import Samples, limit_ffmpeg
from ov_specdec.speech.segments import TranscriptionChunk
from ov_specdec.speech.transcriber import TranscriptionStream
from ov_specdec.speech_pipeline import SpeechPipeline


@dataclass(eq=False)
class Job:
    """A request whose recording waits or is being transcribed.

    tenant: has its turn, and cached prefixes of its own. stream: gets admission and chunks, or the
    error.
    """

    ask: AudioAsk
    recording: BinaryIO
    tenant: str | None
    stream: Stream[TranscriptionChunk]
    is_cancelled: bool = False
    transcription: TranscriptionStream | None = None

    def cancel(self) -> None:
        """End it within a pass. Thread-safe."""
        self.is_cancelled = True
        if self.transcription is not None:
            self.transcription.cancel()


@dataclass
class Transcriptions:
    """A speech model that serves tenants in turns, and requests of each in order of arrival.

    A recording is decoded only when it is next, up to `max_audio_seconds`: small files may become
    large arrays.
    """

    pipeline: SpeechPipeline
    settings: Settings
    metrics: Metrics = field(init=False)
    _thread: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))
    _jobs: set[Job] = field(default_factory=set)
    _waiting: FairQueue[Job] = field(default_factory=FairQueue)
    _lock: Lock = field(default_factory=Lock)
    """Protects `_waiting`."""
    _block_began: float | None = None
    """Start time of the current block of a file."""

    def __post_init__(self) -> None:
        limit_ffmpeg(self.settings.max_audio_seconds)
        self.metrics = Metrics(self.settings.model_name, None)
        self.metrics["num_requests_running"].set_function(
            lambda: sum(job.stream.admitted.is_set() for job in self._jobs)
        )
        self.metrics["num_requests_waiting"].set_function(
            lambda: sum(not job.stream.admitted.is_set() for job in self._jobs)
        )

    @property
    def max_length(self) -> int:
        """Maximum tokens of prompt and output of one window."""
        return self.pipeline.main.runner.max_length

    @asynccontextmanager
    async def running(self, job: Job) -> AsyncIterator[None]:
        """Queue a transcription, which fills its stream; leaving the context cancels it."""
        self._jobs.add(job)
        with self._lock:
            self._waiting.add(job)
        try:
            self._thread.submit(self._fill_next)
            yield
        finally:
            self._jobs.discard(job)
            job.cancel()

    async def collect_metrics(self) -> list[Metric]:
        """Its metrics."""
        return list(self.metrics.registry.collect())

    async def check_health(self) -> None:
        """Raise `ApiError` unless models and decoding make progress."""
        began = self._block_began
        decoding = 0.0 if began is None else monotonic() - began
        if max(self.pipeline.step_seconds, decoding) > self.settings.step_timeout:
            raise stalled()

    def close(self) -> None:
        """End all transcriptions, and free the models."""
        for job in list(self._jobs):
            job.cancel()
        self._thread.shutdown()
        self.pipeline.close()

    def _fill_next(self) -> None:
        with self._lock:
            job = next(iter(self._waiting))
            self._waiting.remove(job)
        job.stream.admit()
        try:
            self._transcribe(job)
        except Exception as error:
            job.stream.end(error)
        else:
            job.stream.end(None)

    def _transcribe(self, job: Job) -> None:
        """Transcribe in this thread; raises `Cancelled`, and errors of the request."""
        if job.is_cancelled:
            raise Cancelled
        salt = join_salt(job.tenant, job.ask.options.get("cache_salt"))
        options = {**job.ask.options, "cache_salt": salt}
        recording = self._read(job)
        receive = job.stream.receiver(0)
        with self.pipeline.stream(recording, **options) as transcription:
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
                receive([chunk])

    def _read(self, job: Job) -> tuple[Samples, int]:
        """Decode a recording; raises `Cancelled` within a block if the job is cancelled."""

        def begin_block() -> None:
            if job.is_cancelled:
                raise Cancelled
            self._block_began = monotonic()

        try:
            return self.pipeline.read(job.recording, self.settings.max_audio_seconds, begin_block)
        finally:
            self._block_began = None
