"""`SpeechPipeline`, the Python interface for speech: a Whisper, a drafter, text from recordings."""

import math
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from typing_extensions import Unpack

from ov_specdec.arguments import check_devices, check_drafter
from ov_specdec.drafters.factory import DrafterFactory, DrafterKind, DrafterName
from ov_specdec.drafters.pairing import DraftModel
from ov_specdec.engine import Engine, EngineLoop, Limits
from ov_specdec.errors import CLOSED, ModelError, SessionError
from ov_specdec.foreign_options import OF_MODELS, OF_SPEECH, name_missing, refuse_foreign
from ov_specdec.kwargs import TranscriptionKwargs
from ov_specdec.loading.alignment import load_aligner
from ov_specdec.loading.compile import LoadedModel, load_models
from ov_specdec.loading.devices import Precision
from ov_specdec.loading.kept_costs import kept_costs
from ov_specdec.loading.locate import locate
from ov_specdec.loading.runtime_config import RuntimeConfig
from ov_specdec.loading.source import FEATURES_CHECK, ModelSource, check_pair, open_source
from ov_specdec.planning.costs import CostCurve, KeptCosts, Progress
from ov_specdec.planning.schedule import LearnedStats
from ov_specdec.runner.encoder_decoder import EncoderDecoderModel
from ov_specdec.speech.audio import Audio, Samples, read_audio
from ov_specdec.speech.decoder import WindowDecoder
from ov_specdec.speech.features import FeatureExtractor
from ov_specdec.speech.model import Model
from ov_specdec.speech.options import TranscriptionOptions
from ov_specdec.speech.segments import TranscriptionResult, collect
from ov_specdec.speech.settings import WhisperSettings
from ov_specdec.speech.stream import TranscriptionStream
from ov_specdec.speech.transcriber import Transcription
from ov_specdec.stats import Stopwatch
from ov_specdec.text.guard import GuardReport


@name_missing(OF_SPEECH)
@refuse_foreign(OF_MODELS)
class SpeechPipeline:
    """Transcribes like the main model, but faster, with draft tokens from a drafter.

    main: folder of an exported Whisper, or its name on the Hub. draft: a smaller or distilled one;
    it shares the main model's encoder if it has the same, or none. drafter: see
    `SpeculativePipeline`; None takes "model" with a draft, else "suffix". The main model's settings
    and language apply to both. encoder_device: device of the encoders; None: that of the decoders.
    Other arguments: see `SpeculativePipeline`.

    It transcribes one recording at a time; chunks of several threads are interleaved.

    Raises `OptionError`, `ModelError`, `DeviceError`, and `TokenizerMismatchError` if draft and
    main have different tokenizers. `close`, or the end of a `with` block, frees the models.
    """

    def __init__(
        self,
        main: str | Path,
        draft: str | Path | None = None,
        *,
        drafter: DrafterName | DrafterKind | None = None,
        device: str = "CPU",
        draft_device: str | None = None,
        encoder_device: str | None = None,
        precision: Precision = "default",
        properties: Mapping[str, str] | None = None,
        draft_properties: Mapping[str, str] | None = None,
        num_threads: int | None = None,
        cache_dir: str | Path | None = None,
    ) -> None:
        watch = Stopwatch()
        kind = check_drafter(drafter, main, draft, draft_device, draft_properties, None)
        config = RuntimeConfig(
            device=device,
            precision=precision,
            properties=properties,
            num_threads=num_threads,
            cache_dir=cache_dir,
            encoder_device=encoder_device,
        )
        draft_config = config.for_draft(draft_device, draft_properties)
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
        drafts = DraftModel(draft_runner) if draft_runner else None
        self._extractor = FeatureExtractor(**sources[0].folder.features)
        self._decoder: WindowDecoder | None = WindowDecoder(
            runners[0],
            EngineLoop(Engine(runners[0], draft_runner, Limits(), self._costs)),
            self.tokenizer,
            settings,
            DrafterFactory(kind, drafts),
            list({id(runner.encoder): runner.encoder for runner in runners}.values()),
            partial(
                load_aligner,
                sources[0].folder,
                config,
                settings.alignment_heads,
                runners[0].encoder,
            ),
            LearnedStats(self._costs),
        )

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
        rate = self._extractor.sampling_rate
        return read_audio(audio, rate, max_seconds, on_block), rate

    def stream(self, audio: Audio, **options: Unpack[TranscriptionKwargs]) -> TranscriptionStream:
        """Transcribe, and yield chunks as they come: one for each window of up to 30 seconds.

        audio: a file (wav, flac, ogg, mp3, m4a, mp4, webm), its path or open; or (samples,
        sampling_rate), the samples [samples] or [samples, channels], from -1 to 1 or int8, int16 or
        int32. options: see `TranscriptionOptions`.

        Recording and options are checked at once; raises `OptionError`, and `AudioError` for an
        invalid recording. `cancel` and `close` of the returned stream end the transcription.
        """
        decoder = self._open_decoder()
        chosen = TranscriptionOptions.from_kwargs(options)
        decoder.check(chosen.at(0.0))
        if chosen.word_timestamps:
            _ = decoder.aligner  # compile it, or fail, before decoding starts
        model = Model(
            decoder.settings,
            self._extractor,
            lambda text: self.tokenizer.encode_rendered(text).ids,
            self.tokenizer.decode,
            decoder,
        )
        samples = read_audio(audio, self._extractor.sampling_rate)
        return TranscriptionStream(Transcription(model, samples, chosen))

    def prepare(
        self, progress: Progress | None = None, *, seconds: float | None = None
    ) -> CostCurve:
        """Measure the cost of passes: see `SpeculativePipeline.prepare`."""
        with self._open_decoder().loop.alone():
            if self._costs is None:  # another thread may have closed the pipeline meanwhile
                raise SessionError(CLOSED)
            return self._costs.prepare(progress, seconds)

    @property
    def step_seconds(self) -> float:
        """Seconds since the current step of the models began; 0 if none is running."""
        return self._open_decoder().loop.step_seconds

    def close(self) -> None:
        """Free the models. A running transcription ends within one pass."""
        if self._decoder is not None:
            self._decoder.loop.close()
        self._decoder = self._costs = None
        self._models = []

    def _open_decoder(self) -> WindowDecoder:
        if self._decoder is None:
            raise SessionError(CLOSED)
        return self._decoder

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
    for check in report.checks:
        if check.name == FEATURES_CHECK and check.differences:
            raise ModelError(
                f"draft '{draft.folder.path}' and main '{main.folder.path}' have different audio "
                f"features ({check.differences[0]}): give a draft with the same features"
            )
    report.require()
    if draft.logits_width < vocab_size:
        raise ModelError(
            f"draft '{draft.folder.path}' has logits for {draft.logits_width} tokens, main for "
            f"{vocab_size}: give a draft with all timestamps"
        )
