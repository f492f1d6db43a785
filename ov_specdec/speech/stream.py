"""A transcription as it goes on: an iterator that any thread may end."""

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
        """End it within one pass of a model; its last chunk comes, and says so.

        Returns at once. May be called from any thread.
        """
        self._transcription.is_cancelled = True

    def close(self) -> None:
        """End it without a last chunk. Waits for a window that is decoded in another thread."""
        self.cancel()
        with self._advancing:
            self._chunks.close()

    def __enter__(self) -> "TranscriptionStream":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
