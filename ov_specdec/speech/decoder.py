"""Decodes windows with the engine, drafters and scheduler of text generation."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from ov_specdec.checks import require_ids
from ov_specdec.chunks import Output
from ov_specdec.description import as_tuple
from ov_specdec.drafters.factory import DrafterFactory
from ov_specdec.drafters.references import References
from ov_specdec.engine import EngineLoop
from ov_specdec.engine.from_options import make_sequence
from ov_specdec.errors import Option
from ov_specdec.options import GenerationOptions
from ov_specdec.planning.schedule import LearnedStats
from ov_specdec.runner.aligner import Aligner
from ov_specdec.runner.base import Runner
from ov_specdec.runner.encoder import Encoder
from ov_specdec.runner.source import Source
from ov_specdec.sampling.from_options import make_samplers
from ov_specdec.speech.features import Features
from ov_specdec.speech.model import Decoding
from ov_specdec.speech.settings import WhisperSettings
from ov_specdec.text.detokenizer import IncrementalDetokenizer
from ov_specdec.text.tokenizer import Tokenizer


@dataclass
class WindowDecoder:
    """Implements `Decoder` with a main model and a drafter. encoders: of main and draft.

    make_aligner: compiles the model for word times. learned: cost curves from earlier outputs.
    """

    main: Runner
    loop: EngineLoop
    tokenizer: Tokenizer
    settings: WhisperSettings
    drafters: DrafterFactory
    encoders: Sequence[Encoder]
    make_aligner: Callable[[], Aligner]
    learned: LearnedStats = field(default_factory=LearnedStats)

    @cached_property
    def aligner(self) -> Aligner:
        """Compiled on first use; raises `ModelError` if the model has no word times."""
        return self.make_aligner()

    @property
    def encoder_seconds(self) -> float:
        """Total time of all encoder passes so far."""
        return sum(encoder.seconds for encoder in self.encoders)

    def check(self, options: GenerationOptions) -> None:
        """Refuse options that the drafter or the main model does not support."""
        self.drafters.check(options)
        for name, ids in options.token_ids().items():
            require_ids(Option(name), ids, self.settings.vocab_size)

    def decode(
        self, features: Features, prompt: Sequence[int], options: GenerationOptions
    ) -> Decoding:
        """The output that follows the prompt, in chunks without text."""
        length, eos = self.settings.max_target_positions, {self.settings.eos_token_id}
        if options.max_new_tokens is not None:
            length = min(len(prompt) + options.max_new_tokens, length)
        samplers = make_samplers(options, prompt_length=len(prompt), eos_token_ids=eos)
        texts = as_tuple(options.reference_texts)
        sequence = make_sequence(
            self.main,
            self.drafters,
            self.learned,
            options,
            samplers,
            list(prompt),
            length,
            frozenset(eos),
            options.cache_salt,
            References([self.tokenizer.encode_rendered(text).ids for text in texts]),
            Source(features[None], options.cache_salt),
        )
        # The transcriber makes the text from the tokens that it keeps.
        output = Output(IncrementalDetokenizer(lambda _: "", []), len(prompt))
        sequence.publish, sequence.max_unread = output.add, None
        return Decoding(self.loop.read(sequence), partial(self.loop.cancel, sequence))

    def weights(
        self, features: Features, tokens: Sequence[int], cache_salt: str | None
    ) -> NDArray[np.float32]:
        """Cross-attention of these ids to a window, by alignment head: [heads, tokens, places]."""
        return self.aligner.weights(Source(features[None], cache_salt), tokens)
