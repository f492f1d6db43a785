"""A running transcription: an iterator that any thread may cancel."""

from ov_specdec.chunk_stream import ChunkStream
from ov_specdec.speech.segments import TranscriptionChunk
from ov_specdec.speech.transcriber import Transcription


class TranscriptionStream(ChunkStream[TranscriptionChunk]):
    """The chunks of one transcription, one for each window of up to 30 seconds.

    The last one has language, finish reason and statistics, and no text.
    """

    def __init__(self, transcription: Transcription) -> None:
        super().__init__(transcription.chunks(), transcription.cancel)
        self._transcription = transcription

    @property
    def audio_seconds(self) -> float:
        """Length of the recording."""
        return self._transcription.stats.audio_seconds
