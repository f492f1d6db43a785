"""A running transcription: an iterator that any thread may cancel."""

from inspect import GEN_RUNNING, getgeneratorstate
from threading import RLock

from ov_specdec.speech.segments import TranscriptionChunk
from ov_specdec.speech.transcriber import Transcription


class TranscriptionStream:
    """The chunks of one transcription, one for each window of up to 30 seconds.

    The last one has language, finish reason and statistics, and no text.
    """

    def __init__(self, transcription: Transcription) -> None:
        self._transcription = transcription
        self._chunks = transcription.chunks()
        self._advancing = RLock()

    @property
    def audio_seconds(self) -> float:
        """Length of the recording."""
        return self._transcription.stats.audio_seconds

    def __iter__(self) -> "TranscriptionStream":
        return self

    def __next__(self) -> TranscriptionChunk:
        with self._advancing:
            return next(self._chunks)

    def cancel(self) -> None:
        """End it within one pass of a model; its last chunk has finish_reason "cancelled".

        Returns at once. May be called from any thread.
        """
        self._transcription.cancel()

    def close(self) -> None:
        """End it without a last chunk. Waits for a pass that is running in another thread.

        Called by one of its own logits processors, it does what `cancel` does.
        """
        self.cancel()
        with self._advancing:
            if getgeneratorstate(self._chunks) != GEN_RUNNING:
                self._chunks.close()

    def __enter__(self) -> "TranscriptionStream":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
