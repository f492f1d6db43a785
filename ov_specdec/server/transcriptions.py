"""Transcriptions behind the server: one after the other, in a thread of their own."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import BinaryIO

from prometheus_client import Metric

from ov_specdec.openai.audio import AudioAsk
from ov_specdec.server.metrics import Metrics
from ov_specdec.server.settings import Settings
from ov_specdec.server.stream import Stream
from ov_specdec.speech.segments import TranscriptionChunk
from ov_specdec.speech.stream import TranscriptionStream
from ov_specdec.speech_pipeline import SpeechPipeline


@dataclass
class Transcriptions:
    """A speech model that serves requests in the order in which they came."""

    pipeline: SpeechPipeline
    settings: Settings
    metrics: Metrics = field(init=False)
    _thread: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))
    _running: set[TranscriptionStream] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.metrics = Metrics(self.settings.model_name, None)

    @property
    def max_length(self) -> int:
        """Tokens of prompt and output of one window."""
        return self.pipeline.main.runner.max_length

    def open(self, ask: AudioAsk, recording: BinaryIO, tenant: str | None) -> TranscriptionStream:
        """A transcription, recording and options checked. Takes a while: not for the loop.

        tenant: whose earlier outputs may be used as candidates.
        """
        salted = {} if tenant is None else {"cache_salt": tenant}
        return self.pipeline.stream(recording, **{**salted, **ask.options})

    @contextmanager
    def running(
        self, transcription: TranscriptionStream, stream: Stream[TranscriptionChunk]
    ) -> Iterator[None]:
        """Run a transcription that fills a stream; in the end it is cancelled."""
        self._running.add(transcription)
        try:
            self._thread.submit(self._fill, transcription, stream)
            yield
        finally:
            self._running.discard(transcription)
            transcription.cancel()

    def collect_metrics(self) -> list[Metric]:
        """What it counts."""
        return list(self.metrics.registry.collect())

    def cancel_all(self) -> None:
        """End all transcriptions within a pass."""
        for transcription in list(self._running):
            transcription.cancel()

    def close(self) -> None:
        """End all transcriptions, and free the models."""
        self.cancel_all()
        self._thread.shutdown()
        self.pipeline.close()

    def _fill(self, transcription: TranscriptionStream, stream: Stream[TranscriptionChunk]) -> None:
        receive = stream.receiver(0)
        try:
            for chunk in transcription:
                receive([chunk])
                if chunk.stats is not None and chunk.finish_reason is not None:
                    stats = chunk.stats.generation
                    self.metrics.generation_tokens.inc(stats.generated_tokens)
                    self.metrics.ended(stats, chunk.finish_reason)
        except Exception as error:
            stream.end(error)
        else:
            stream.end(None)
