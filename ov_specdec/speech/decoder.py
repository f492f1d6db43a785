"""Decodes windows with the models: the engine, drafters and scheduler that text has too."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from functools import partial

from ov_specdec.cache.encoder import Encoder
from ov_specdec.cache.session import Runner
from ov_specdec.cache.source import Source
from ov_specdec.checks import require_ids
from ov_specdec.chunks import Chunk, Output
from ov_specdec.options import GenerationOptions, as_tuple
from ov_specdec.sampling.from_options import make_samplers
from ov_specdec.scheduling import Request, Turns
from ov_specdec.speculation.begin import begin, make_drafter, time_passes
from ov_specdec.speculation.drafters.factory import DrafterFactory
from ov_specdec.speculation.engine import SequenceState
from ov_specdec.speculation.schedule import LearnedStats
from ov_specdec.speech.features import Features
from ov_specdec.speech.settings import WhisperSettings
from ov_specdec.speech.transcriber import Decoding
from ov_specdec.text.detokenizer import IncrementalDetokenizer
from ov_specdec.text.tokenizer import Tokenizer


@dataclass
class WindowDecoder:
    """Implements `Decoder` with a main model and a drafter. encoders: of main and draft.

    learned: what outputs before have taught about the speed of the models.
    """

    main: Runner
    turns: Turns
    tokenizer: Tokenizer
    settings: WhisperSettings
    drafters: DrafterFactory
    encoders: Sequence[Encoder]
    learned: LearnedStats = field(default_factory=LearnedStats)

    @property
    def encoder_seconds(self) -> float:
        """Time that all passes of the encoders took so far."""
        return sum(encoder.seconds for encoder in self.encoders)

    def check(self, options: GenerationOptions) -> None:
        """Refuse options that drafter or main model has no use for."""
        self.drafters.check(options)
        for name, ids in options.token_ids().items():
            require_ids(name, ids, self.settings.vocab_size)

    def decode(
        self, features: Features, prompt: Sequence[int], options: GenerationOptions
    ) -> Decoding:
        """The output that follows the prompt, in chunks without text."""
        length, eos = self.settings.max_target_positions, {self.settings.eos_token_id}
        if options.max_new_tokens is not None:
            length = min(len(prompt) + options.max_new_tokens, length)
        state = SequenceState(list(prompt), length, frozenset(eos))
        samplers = make_samplers(options, prompt_length=len(prompt), eos_token_ids=eos)
        salt = options.cache_salt
        source = Source(features[None], salt)
        # Its text is made of what is left of it in the end.
        output = Output(state, IncrementalDetokenizer(lambda _: "", []), len(prompt))
        texts = as_tuple(options.reference_texts)
        references = [self.tokenizer.encode_rendered(text).ids for text in texts]
        drafter = make_drafter(
            self.main, self.drafters, options, samplers, state, salt, references, source
        )
        request = Request[Chunk](
            partial(begin, self.main, drafter, self.learned, options, samplers, state, source),
            output.add,
            len(prompt),
            max_unread=None,
            prepare=partial(time_passes, self.main, drafter, self.learned, options),
        )
        return Decoding(self._read(request), partial(self.turns.cancel, request))

    def _read(self, request: Request[Chunk]) -> Generator[Chunk, None, None]:
        """The chunks of an output; what passes have cost is kept."""
        try:
            yield from self.turns.read(request)
        finally:
            self.learned.costs.keep()
