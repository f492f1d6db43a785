"""`SpeechPipeline`, the Python interface for speech: a Whisper, a drafter, text from recordings."""

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path

from typing_extensions import Self, Unpack

from ov_specdec.engine.engine import Engine
from ov_specdec.engine.loop import EngineLoop
from ov_specdec.engine.scheduler import Limits
from ov_specdec.errors import CLOSED, ModelError, SessionError
from ov_specdec.generation.arguments import check_devices
from ov_specdec.generation.pipeline_options import SpeechPipelineOptions
from ov_specdec.generation.text_generator import TextGenerator
from ov_specdec.models.compile import LoadedModel, load_aligner, load_models
from ov_specdec.models.kept_costs import kept_costs
from ov_specdec.models.locate import locate
from ov_specdec.models.source import FEATURES_CHECK, ModelSource, check_pair, open_source
from ov_specdec.options.foreign_names import drop_neutral
from ov_specdec.options.kwargs import SpeechPipelineKwargs, TranscriptionKwargs
from ov_specdec.planning.costs import CostCurve, Progress
from ov_specdec.planning.costs.source import KeptCosts
from ov_specdec.planning.schedule import LearnedStats
from ov_specdec.results.stats import Stopwatch
from ov_specdec.runner.encoder_decoder import EncoderDecoderModel
from ov_specdec.speech.audio import Audio, Samples, read_audio
from ov_specdec.speech.features import FeatureExtractor
from ov_specdec.speech.options import TranscriptionOptions
from ov_specdec.speech.segments import TranscriptionResult, collect
from ov_specdec.speech.settings import WhisperSettings
from ov_specdec.speech.transcriber import Transcription, TranscriptionStream
from ov_specdec.speech.whisper import Whisper
from ov_specdec.text.guard import GuardReport


class SpeechPipeline:
    """Transcribes like the main model, but faster, with draft tokens from a drafter.

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
        watch = Stopwatch()
        known = drop_neutral(options, SpeechPipelineOptions.model_fields)
        given = SpeechPipelineOptions(main=main, draft=draft, **known)
        kind, (config, draft_config) = given.kind, given.configs
        check_devices([config] if draft is None else [config, draft_config])
        sources = [open_source(locate(name)) for name in (main, draft) if name is not None]
        settings = WhisperSettings.read(sources[0].folder.path)
        self.guard_report: GuardReport | None = None
        if len(sources) > 1:
            self.guard_report = check_pair(*sources)
            _require_fit(self.guard_report, sources[0], sources[1], settings.vocab_size)
        configs = (config, draft_config)[: len(sources)]
        # Timestamps count, though tokenizers may have no text for them.
        sizes = [settings.vocab_size for _ in sources]
        self._models = load_models(list(zip(sources, configs, sizes, strict=True)))
        self.tokenizer = sources[0].tokenizer
        self.drafter = kind.name
        self.load_seconds = watch.total()
        self._costs: KeptCosts | None = kept_costs(self._models, self.load_seconds)
        runners = [_speech_runner(model) for model in self._models]
        draft_runner = runners[1] if len(runners) > 1 else None
        generator = TextGenerator(
            runners[0],
            EngineLoop(Engine(runners[0], draft_runner, Limits(), self._costs)),
            self.tokenizer,
            settings.vocab_size,
            frozenset({settings.eos_token_id}),
            kind,
            draft_runner,
            learned=LearnedStats(self._costs),
        )
        heads, encoder = settings.alignment_heads, runners[0].encoder
        self._whisper: Whisper | None = Whisper(
            settings,
            FeatureExtractor(**sources[0].folder.features),
            generator,
            list({id(runner.encoder): runner.encoder for runner in runners}.values()),
            partial(load_aligner, sources[0].folder, config, heads, encoder),
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

    @property
    def main(self) -> LoadedModel:
        """The main model. Raises `SessionError` once the pipeline is closed."""
        if not self._models:
            raise SessionError(CLOSED)
        return self._models[0]

    @property
    def draft(self) -> LoadedModel | None:
        """The draft model, if the drafter has one."""
        return self._models[1] if len(self._models) > 1 else None

    @property
    def shares_encoder(self) -> bool:
        """Whether the draft model decodes from the output of the main model's encoder."""
        runners = [_speech_runner(model) for model in self._models]
        return len(runners) > 1 and runners[0].encoder is runners[1].encoder

    def transcribe(
        self, audio: Audio, **options: Unpack[TranscriptionKwargs]
    ) -> TranscriptionResult:
        """Transcribe to the end. Recording and options: see `stream`."""
        with self.stream(audio, **options) as chunks:
            return collect(list(chunks))

    def read(
        self,
        audio: Audio,
        max_seconds: float = math.inf,
        on_block: Callable[[], None] = lambda: None,
    ) -> tuple[Samples, int]:
        """Read a recording as samples with their rate, for `stream`: see `read_audio`."""
        rate = self._open_whisper().extractor.sampling_rate
        return read_audio(audio, rate, max_seconds, on_block), rate

    def stream(self, audio: Audio, **options: Unpack[TranscriptionKwargs]) -> TranscriptionStream:
        """Transcribe, and yield chunks as they come: one for each window of up to 30 seconds.

        audio: a file (wav, flac, ogg, mp3, m4a, mp4, webm), its path or open; or (samples,
        sampling_rate), the samples [samples] or [samples, channels], from -1 to 1 or int8, int16 or
        int32. options: see `TranscriptionOptions`.

        Recording and options are checked at once; raises `OptionError`, and `AudioError` for an
        invalid recording. `cancel` and `close` of the returned stream end the transcription.
        """
        whisper = self._open_whisper()
        chosen = TranscriptionOptions.from_kwargs(options)
        whisper.generator.check(chosen.at(0.0))
        if chosen.word_timestamps:
            _ = whisper.aligner  # compile it, or fail, before decoding starts
        samples = read_audio(audio, whisper.extractor.sampling_rate)
        return TranscriptionStream(Transcription(whisper, samples, chosen))

    def prepare(
        self, progress: Progress | None = None, *, seconds: float | None = None
    ) -> CostCurve:
        """Measure the cost of passes: see `SpeculativePipeline.prepare`."""
        with self._open_whisper().generator.loop.alone():
            if self._costs is None:  # another thread may have closed the pipeline meanwhile
                raise SessionError(CLOSED)
            return self._costs.prepare(progress, seconds)

    @property
    def step_seconds(self) -> float:
        """Seconds since the current step of the models began; 0 if none is running."""
        return self._open_whisper().generator.loop.step_seconds

    def close(self) -> None:
        """Free the models. A running transcription ends within one pass."""
        if self._whisper is not None:
            self._whisper.generator.loop.close()
        self._whisper = self._costs = None
        self._models = []

    def _open_whisper(self) -> Whisper:
        if self._whisper is None:
            raise SessionError(CLOSED)
        return self._whisper

    def __enter__(self) -> "SpeechPipeline":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _speech_runner(model: LoadedModel) -> EncoderDecoderModel:
    """A Whisper's runner."""
    if not isinstance(model.runner, EncoderDecoderModel):
        raise ModelError(f"{model.folder.path} has no encoder: give a Whisper")
    return model.runner


def _require_fit(
    report: GuardReport, main: ModelSource, draft: ModelSource, vocab_size: int
) -> None:
    """Refuse a draft with other features, another tokenizer, or without timestamps."""
    if found := report.checks.get(FEATURES_CHECK):
        raise ModelError(
            f"draft '{draft.folder.path}' and main '{main.folder.path}' have different audio "
            f"features ({found[0]}): give a draft with the same features"
        )
    report.require()
    if draft.logits_width < vocab_size:
        raise ModelError(
            f"draft '{draft.folder.path}' has logits for {draft.logits_width} tokens, main for "
            f"{vocab_size}: give a draft with all timestamps"
        )
