"""The parts that all transcriptions of a model share."""

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

    chunks: the last one has a finish reason and stats; raises `Cancelled` instead if cancelled.
    cancel: ends it within one pass of a model, from any thread.
    """

    chunks: Iterator[Chunk]
    cancel: Callable[[], None]


class Decoder(Protocol):
    """Decodes a window, speculatively or plainly."""

    @property
    def encoder_seconds(self) -> float:
        """Total time of all encoder passes so far."""
        ...

    def decode(
        self, features: Features, prompt: Sequence[int], options: GenerationOptions
    ) -> Decoding:
        """Decode the output after the prompt.

        features: [mel bins, frames] of one encoder pass. prompt: ids.
        """
        ...

    def weights(
        self, features: Features, tokens: Sequence[int], cache_salt: str | None
    ) -> NDArray[np.float32]:
        """Cross-attention of these ids to a window, by alignment head: [heads, tokens, places].

        A place is two frames. cache_salt: as in the generation of the ids.
        """
        ...


@dataclass(frozen=True)
class Model:
    """A Whisper with its settings, feature extractor, tokenizer and decoder.

    encode: the ids of a text without special tokens. decode: the text of text ids.
    """

    settings: WhisperSettings
    extractor: FeatureExtractor
    encode: Callable[[str], list[int]]
    decode: Callable[[Sequence[int]], str]
    decoder: Decoder
