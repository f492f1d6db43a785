"""`SpeechPipeline`, the Python interface for speech: a Whisper, a drafter, text from recordings."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from time import perf_counter
from typing import Any

from typing_extensions import Self, Unpack

from ov_specdec.engine.answers import Answers
from ov_specdec.engine.engine import Engine
from ov_specdec.engine.loop import EngineLoop
from ov_specdec.errors import CLOSED, ModelError, SessionError
from ov_specdec.generation.pipeline import open_models
from ov_specdec.generation.pipeline_options import SpeechPipelineOptions
from ov_specdec.generation.sequence_factory import SequenceFactory
from ov_specdec.generation.text_generator import TextGenerator
from ov_specdec.models.budgets import kept_costs
from ov_specdec.models.compile import load_aligner, load_models
from ov_specdec.models.exported import FEATURES_CHECK, compare_models
from ov_specdec.options.foreign_names import drop_neutral
from ov_specdec.options.kwargs import SpeechPipelineKwargs, TranscriptionKwargs
from ov_specdec.pipeline import Pipeline
from ov_specdec.planning.policies import LearnedStats
from ov_specdec.runner.encoder_decoder import EncoderDecoderModel
from ov_specdec.speech.audio import Audio, read_audio
from ov_specdec.speech.features import FeatureExtractor
from ov_specdec.speech.options import TranscriptionOptions
from ov_specdec.speech.segments import TranscriptionResult, collect
from ov_specdec.speech.settings import WhisperSettings
from ov_specdec.speech.transcriber import Transcription, TranscriptionStream, Whisper


class SpeechPipeline(Pipeline):
    """Transcribes like the main model, with draft tokens from a drafter.

    main: folder of an exported Whisper, or its name on the Hub. draft: a smaller or distilled one;
    it shares the main model's encoder if it has the same, or none. options: see
    `SpeechPipelineOptions`. The main model's settings and language apply to both.

    It transcribes one recording at a time; chunks of several threads are interleaved.

    Raises `OptionError`, `ModelError`, `DeviceError`, and `TokenizerMismatchError` if draft and
    main have different tokenizers. `close`, or the end of a `with` block, frees the models.
    """

    def __init__(
        self,
        main: str | Path,
        draft: str | Path | None = None,
        **options: Unpack[SpeechPipelineKwargs],
    ) -> None:
        began = perf_counter()
        known = drop_neutral(options, SpeechPipelineOptions.model_fields)
        given = SpeechPipelineOptions(main=main, draft=draft, **known)
        exported, configs = open_models(given), given.configs
        settings = WhisperSettings.read(exported[0].folder.path)
        self.guard_report = compare_models(*exported) if len(exported) > 1 else None
        if self.guard_report is not None:
            if found := self.guard_report.checks.get(FEATURES_CHECK):
                raise ModelError(
                    f"draft '{draft}' and main '{main}' have different audio features "
                    f"({found[0]}): give a draft with the same features"
                )
            self.guard_report.require()
        # Timestamps count, though tokenizers may have no text for them.
        whole = [replace(each, vocab_size=settings.vocab_size) for each in exported]
        models = load_models(list(zip(whole, configs, strict=True)))
        self.tokenizer = exported[0].tokenizer
        self.drafter = given.kind.name
        self.load_seconds = perf_counter() - began
        costs = kept_costs(models)
        loaded = (model.runner for model in models)
        runners = [runner for runner in loaded if isinstance(runner, EncoderDecoderModel)]
        encoders = list(dict.fromkeys(runner.encoder for runner in runners))
        self.shares_encoder = len(encoders) < len(runners)
        """Whether the draft model decodes from the output of the main model's encoder."""
        first, draft_runner, *_ = *runners, None
        ends, learned = frozenset({settings.eos_token_id}), LearnedStats(costs)
        sequences = SequenceFactory(first, given.kind, ends, draft_runner, learned=learned)
        loop, answers = EngineLoop(Engine(first, draft_runner, costs=costs)), Answers(first)
        size = settings.vocab_size
        self._generator = TextGenerator(sequences, loop, answers, self.tokenizer, size, models)
        folder, heads = exported[0].folder, settings.alignment_heads
        self._whisper: Whisper | None = Whisper(
            settings,
            FeatureExtractor(**folder.features),
            self._generator,
            encoders,
            cache(partial(load_aligner, folder, configs[0], heads, encoders[0])),
        )

    @classmethod
    def from_pretrained(
        cls,
        main: str | Path,
        draft: str | Path | None = None,
        **options: Unpack[SpeechPipelineKwargs],
    ) -> Self:
        """The constructor, under the name that it has in transformers."""
        return cls(main, draft, **options)

    def transcribe(
        self, audio: Audio, **options: Unpack[TranscriptionKwargs]
    ) -> TranscriptionResult:
        """Transcribe to the end. Recording and options: see `stream`."""
        with self.stream(audio, **options) as chunks:
            return collect(list(chunks))

    def stream(self, audio: Audio, **options: Unpack[TranscriptionKwargs]) -> TranscriptionStream:
        """Transcribe, and yield chunks as they come: one for each window of up to 30 seconds.

        audio: a file (wav, flac, ogg, mp3, m4a, mp4, webm), its path or open; or (samples,
        sampling_rate), the samples [samples] or [samples, channels], from -1 to 1 or int8, int16 or
        int32. options: see `TranscriptionOptions`.

        Recording and options are checked at once; raises `OptionError`, and `AudioError` for an
        invalid recording. `cancel` and `close` of the returned stream end the transcription.
        """
        return self.open_stream(audio, options)

    def open_stream(
        self,
        audio: Audio,
        options: Mapping[str, Any],
        max_seconds: float = math.inf,
        on_block: Callable[[], None] = lambda: None,
    ) -> TranscriptionStream:
        """The same, for recordings of strangers: see `read_audio`."""
        whisper = self._open_whisper()
        chosen = TranscriptionOptions.from_kwargs(options)
        first, generator = chosen.at(0.0), whisper.generator
        generator.prompts.check(first)
        generator.sequences.drafter.check(first)
        if chosen.word_timestamps:
            whisper.aligner()  # compile it, or fail, before decoding starts
        samples = read_audio(audio, whisper.extractor.sampling_rate, max_seconds, on_block)
        return TranscriptionStream(Transcription(whisper, samples, chosen))

    @property
    def step_seconds(self) -> float:
        """Seconds since the current step of the models began; 0 if none is running."""
        return self._open_generator().loop.step_seconds

    def close(self) -> None:
        """Free the models. A running transcription ends within one pass."""
        super().close()
        self._whisper = None

    def _open_whisper(self) -> Whisper:
        if self._whisper is None:
            raise SessionError(CLOSED)
        return self._whisper
