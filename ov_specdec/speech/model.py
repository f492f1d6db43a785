"""What all transcriptions share: a Whisper, how it hears, and what decodes with it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ov_specdec.chunks import Chunk
from ov_specdec.options import GenerationOptions
from ov_specdec.speech.features import FeatureExtractor, Features
from ov_specdec.speech.settings import WhisperSettings


@dataclass(frozen=True)
class Decoding:
    """One output as it comes.

    chunks: the last has a finish reason and stats; raises `Cancelled` where there is none. cancel:
    ends it within one pass of a model, from any thread.
    """

    chunks: Iterator[Chunk]
    cancel: Callable[[], None]


class Decoder(Protocol):
    """What decodes a window, speculatively or not."""

    @property
    def encoder_seconds(self) -> float:
        """Time that all passes of the encoders took so far."""
        ...

    def decode(
        self, features: Features, prompt: Sequence[int], options: GenerationOptions
    ) -> Decoding:
        """The output that follows the prompt.

        features: [mel bins, frames], as many as the encoder takes. prompt: ids.
        """
        ...

    def weights(
        self, features: Features, tokens: Sequence[int], cache_salt: str | None
    ) -> NDArray[np.float32]:
        """How these ids attend to a window, by alignment head: [heads, tokens, places].

        A place is two frames. cache_salt: that of the generation which wrote the ids.
        """
        ...


@dataclass(frozen=True)
class Model:
    """What all transcriptions share: a Whisper, and how it hears and writes.

    encode: the ids of a text without special tokens. decode: the text of ids that are text.
    """

    settings: WhisperSettings
    extractor: FeatureExtractor
    encode: Callable[[str], list[int]]
    decode: Callable[[Sequence[int]], str]
    decoder: Decoder
