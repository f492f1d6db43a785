"""A Whisper: what all transcriptions of a model share, and the decoding of its windows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ov_specdec.cache.slot import Source
from ov_specdec.generation.text_generator import GenerationStream, TextGenerator
from ov_specdec.options.generation import GenerationOptions
from ov_specdec.runner.encoder_decoder import Aligner, Encoder
from ov_specdec.speech.features import FeatureExtractor, Features
from ov_specdec.speech.settings import WhisperSettings


@dataclass
class Whisper:
    """A Whisper with its settings, its feature extractor, and the generator of its tokens.

    encoders: of main and draft. make_aligner: compiles the model for word times.
    """

    settings: WhisperSettings
    extractor: FeatureExtractor
    generator: TextGenerator
    encoders: Sequence[Encoder]
    make_aligner: Callable[[], Aligner]

    @cached_property
    def aligner(self) -> Aligner:
        """Compiled on first use; raises `ModelError` if the model has no word times."""
        return self.make_aligner()

    @property
    def encoder_seconds(self) -> float:
        """Total time of all encoder passes so far."""
        return sum(encoder.seconds for encoder in self.encoders)

    def encode_text(self, text: str) -> list[int]:
        """The ids of a text without special tokens."""
        return self.generator.tokenizer.encode_rendered(text).ids

    def decode_text(self, ids: Sequence[int]) -> str:
        """The text of text ids."""
        return self.generator.tokenizer.decode(ids)

    def piece_after(self, previous: int | None, token: int) -> bytes:
        """The bytes that a token adds after another one."""
        return self.generator.tokenizer.piece_after(previous, token)

    def decode_window(
        self, features: Features, prompt: Sequence[int], options: GenerationOptions
    ) -> GenerationStream:
        """The output that follows the prompt, in chunks without text.

        features: [mel bins, frames] of one encoder pass. A cancelled stream raises `Cancelled`.
        """
        source = Source(features[None], options.cache_salt)
        return self.generator.stream_window(source, prompt, options)

    def weights(
        self, features: Features, tokens: Sequence[int], cache_salt: str | None
    ) -> NDArray[np.float32]:
        """Cross-attention of these ids to a window: [heads, tokens, positions of two frames].

        cache_salt: as in the generation of the ids.
        """
        return self.aligner.weights(Source(features[None], cache_salt), tokens)
