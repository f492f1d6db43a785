"""Decodes windows with the models: the engine, drafters and scheduler that text has too."""

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

    make_aligner: compiles what times of words are read off. learned: what outputs before have
    taught about the speed of the models.
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
        """Compiled when first asked for; raises `ModelError` where words have no times."""
        return self.make_aligner()

    @property
    def encoder_seconds(self) -> float:
        """Time that all passes of the encoders took so far."""
        return sum(encoder.seconds for encoder in self.encoders)

    def check(self, options: GenerationOptions) -> None:
        """Refuse options that drafter or main model has no use for."""
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
        # Its text is made of what is left of it in the end.
        output = Output(IncrementalDetokenizer(lambda _: "", []), len(prompt))
        sequence.publish, sequence.max_unread = output.add, None
        return Decoding(self.loop.read(sequence), partial(self.loop.cancel, sequence))

    def weights(
        self, features: Features, tokens: Sequence[int], cache_salt: str | None
    ) -> NDArray[np.float32]:
        """How these ids attend to a window, by alignment head: [heads, tokens, places]."""
        return self.aligner.weights(Source(features[None], cache_salt), tokens)
