"""`SpeculativePipeline`, the Python interface: a main model, a drafter, and text from both."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from typing_extensions import Never, Unpack

from ov_specdec.arguments import (
    check_batch,
    check_devices,
    check_drafter,
    check_limits,
    complete,
    may_tune,
    refuse_unnamed,
)
from ov_specdec.batch import Batch
from ov_specdec.checks import require_choice, require_text
from ov_specdec.chunks import GenerationResult, collect
from ov_specdec.drafters.factory import DrafterKind, DrafterName
from ov_specdec.errors import CLOSED, SessionError
from ov_specdec.foreign_options import (
    OF_GENERATION,
    OF_MODELS,
    OF_PIPELINES,
    drop_neutral,
    name_missing,
    refuse_foreign,
)
from ov_specdec.generation import GenerationStream, TextGenerator
from ov_specdec.kwargs import GenerationKwargs
from ov_specdec.loading.compile import LoadedModel
from ov_specdec.loading.devices import Precision
from ov_specdec.loading.generation_config import GenerationConfigUse
from ov_specdec.loading.invariance import WantedInvariance, check_wanted
from ov_specdec.loading.kept_costs import kept_costs
from ov_specdec.loading.runtime_config import KvBackend, RuntimeConfig
from ov_specdec.loading.static_shapes import WantedShapes, check_sizes
from ov_specdec.options import GenerationOptions
from ov_specdec.pipeline_models import load, make_generator, open_sources, sampling_defaults
from ov_specdec.planning.costs import CostCurve, KeptCosts, Progress
from ov_specdec.saved_cache import load_caches, save_caches
from ov_specdec.stats import BatchInvariance, Stopwatch
from ov_specdec.text.pairing import PairingName
from ov_specdec.text.prompt import Prompt, take_prompt


@name_missing(OF_PIPELINES)
@refuse_foreign({**dict.fromkeys(GenerationKwargs.__annotations__, OF_GENERATION), **OF_MODELS})
class SpeculativePipeline:
    """Generates the main model's own text, faster, with draft tokens from a drafter.

    main, draft: folders that `ov-specdec export` wrote, or names of OpenVINO models on the Hub;
    both None take the embedded pair.
    drafter: "model", the default with a draft model; "suffix", the default for a main model alone
    (what followed the longest match in prompt, output, reference texts and earlier outputs);
    "both" (suffix, or the draft model in rounds where it promises more); "prompt-lookup" (the
    latest match of three tokens); "none" (plain decoding); or your own `DrafterKind`.
    pairing: pairs models with different tokenizers: "intersection" drafts only common tokens,
    "retokenize" encodes the draft's text again, "auto" chooses; the attribute `pairing` is the one
    in use, None if the tokenizers are the same.
    device, draft_device, encoder_device: OpenVINO devices; drafts and encoders run on the main
    model's by default.
    kv: type of KV cache; "auto" takes "paged" if the model and device support it.
    precision: "exact" is f32 with only weights quantized.
    properties: OpenVINO properties for both models; draft_properties: of the draft, over those.
    num_threads: CPU threads of each model.
    cache_dir: folder that caches compiled models for faster loading; see `load_seconds`.
    profile: the properties that `ov-specdec tune` found: "auto" uses them if there are some and no
    properties are given, "none" does not; or a file. The attribute `profile` is its path.
    max_hidden_tokens: rejected entries that a stateful KV cache masks before it is trimmed; 0 trims
    at every rollback.
    static_shapes: see `WantedShapes`.
    generation_config: default sampling options: "model" takes those of the main model's
    generation_config.json, "none" is greedy decoding.
    chat_template: a Jinja file that replaces the main model's template.
    batch_invariant: whether a token's logits are bitwise the same in any pass of the main model, so
    that a text is the same with any drafter, at any concurrency, with cold or warm caches. "auto":
    if possible (see the attribute `batch_invariant`); True: raises if impossible, and takes the
    fastest precision that allows it; False: passes without it.
    max_batch_size: maximum concurrent generations; they share passes, and others wait.
    kv_cache_size: maximum memory for the KV caches of both models, in GB, on each device, allocated
    as needed; None: enough for `max_batch_size` sequences of maximum length, at most half of the
    free memory. When it is used up, the newest generation is preempted; its output is the same.
    max_model_len: maximum tokens of prompt and output; None: the main model's context.
    max_prefill_tokens_per_step: maximum prefill tokens of a pass while other generations decode,
    for each prompt that is being prefilled; the first prompt may take those of all.

    For encoder-decoder models, the prompt is the input of the encoder. A draft shares the main
    model's encoder if it has the same weights, or none. Generations run one at a time.

    Raises `OptionError`, `ModelError`, `DeviceError`, and `TokenizerMismatchError` if draft and
    main have different tokenizers and no pairing is given, or none is possible. `close`, or the end
    of a `with` block, frees the models.
    """

    def __init__(
        self,
        main: str | Path | None = None,
        draft: str | Path | None = None,
        *,
        drafter: DrafterName | DrafterKind | None = None,
        pairing: PairingName | None = None,
        device: str = "CPU",
        draft_device: str | None = None,
        encoder_device: str | None = None,
        kv: KvBackend = "auto",
        precision: Precision = "default",
        properties: Mapping[str, str] | None = None,
        draft_properties: Mapping[str, str] | None = None,
        max_hidden_tokens: int | None = None,
        num_threads: int | None = None,
        cache_dir: str | Path | None = None,
        profile: str | Path = "auto",
        generation_config: GenerationConfigUse = "none",
        chat_template: str | Path | None = None,
        max_batch_size: int = 16,
        kv_cache_size: float | None = None,
        max_model_len: int | None = None,
        max_prefill_tokens_per_step: int | None = None,
        static_shapes: WantedShapes = "auto",
        batch_invariant: WantedInvariance = "auto",
    ) -> None:
        watch = Stopwatch()
        check_wanted(batch_invariant)
        require_choice("generation_config", generation_config, get_args(GenerationConfigUse))
        kind = check_drafter(drafter, main, draft, draft_device, draft_properties, pairing, profile)
        static_shapes = check_sizes(static_shapes)
        limits = check_limits(max_batch_size, kv_cache_size, max_prefill_tokens_per_step)
        config = RuntimeConfig(
            *(device, kv, precision, properties, max_hidden_tokens, num_threads, cache_dir),
            encoder_device=encoder_device,
            max_model_len=max_model_len,
            shares_passes=limits.max_batch_size > 1,
            static_shapes=static_shapes,
        )
        configs = [config, config.for_draft(draft_device, draft_properties)]
        check_devices(configs if kind.has_draft_model else configs[:1])
        if not may_tune(profile, *configs):
            profile = "none"

        sources = open_sources(main, draft, kind, chat_template)
        self._defaults = sampling_defaults(generation_config, sources[0])
        models = load(
            sources,
            configs,
            pairing=pairing,
            profile=profile,
            batch_invariant=batch_invariant,
            kv_cache_size=kv_cache_size,
            max_batch_size=max_batch_size,
        )
        self.load_seconds = watch.total()
        self.drafter = kind.name
        self.tokenizer = sources[0].tokenizer
        self.guard_report = models.guard_report
        self.profile = models.profile
        self.pairing = models.paired.name if models.paired else None
        # Main first, then the draft where there is one; empty once the pipeline is closed.
        self._models = models.loaded
        self._invariance = models.invariance
        compare = self._invariance.compare
        self._costs: KeptCosts | None = kept_costs(self._models, self.load_seconds, compare)
        self._generator: TextGenerator | None = make_generator(models, self._costs, kind, limits)

    @property
    def batch_invariant(self) -> BatchInvariance:
        """Whether a token's logits are bitwise the same in any pass of the main model, and why."""
        return self._invariance.status

    @property
    def main(self) -> LoadedModel:
        """The main model. Raises `SessionError` once the pipeline is closed."""
        return self._open_models()[0]

    @property
    def draft(self) -> LoadedModel | None:
        """The draft model, if the drafter has one."""
        return self._models[1] if len(self._models) > 1 else None

    @property
    def costs(self) -> CostCurve:
        """The cost curve of passes; with 0 sweeps it is the nominal one.

        Raises `SessionError` once the pipeline is closed.
        """
        return self._open_generator().learned.costs.curve

    def generate(
        self, prompt: Prompt | None = None, *more: Never, **options: Unpack[GenerationKwargs]
    ) -> GenerationResult:
        """Generate to the end. Prompt and options: see `stream`."""
        with self.stream(prompt, *more, **options) as chunks:
            return collect(chunks)

    def stream(
        self, prompt: Prompt | None = None, *more: Never, **options: Unpack[GenerationKwargs]
    ) -> GenerationStream:
        """Generate, and yield chunks as they come; the last one has the finish reason and stats.

        prompt: a text, token ids, or messages: [{"role": "user", "content": "Hello"}]. If the model
        has a chat template, a text is the user's message. Answers of this pipeline among messages
        keep their generated ids. The output of a transformers tokenizer is a prompt too, as one
        argument or as `**inputs`. options: see `GenerationOptions`; and a
        `transformers.GenerationConfig` as `generation_config`.

        Prompt and options are checked at once; raises `OptionError`, and `ModelError` for a broken
        chat template. `cancel` and `close` of the returned stream end the generation.
        """
        generator = self._open_generator()
        refuse_unnamed(more)
        asked, given = take_prompt(prompt, drop_neutral(options))
        return generator.stream(asked, self._complete(given))

    def generate_batch(
        self,
        prompts: Sequence[Prompt],
        options: Sequence[Mapping[str, Any]] | None = None,
        **shared: Unpack[GenerationKwargs],
    ) -> list[GenerationResult]:
        """Generate for several prompts together; results in the same order.

        prompts: each as for `stream`. options: for each prompt, its differences from the `shared`
        ones. All are checked first. Each output equals that of the prompt alone; up to
        `max_batch_size` of them share passes, the others wait. Raises the first error of a prompt,
        and cancels the others.
        """
        generator = self._open_generator()
        own = check_batch(prompts, options)
        checked = [self.complete_options(**{**shared, **each}) for each in own]
        return generator.batch(list(zip(prompts, checked, strict=True)))

    def background(self, on_error: Callable[[Exception], None]) -> TextGenerator:
        """Start a thread that runs generations, for servers. Returns their generator.

        They share passes with those of `stream` and `generate`. on_error: see `EngineLoop.start`.
        """
        generator = self._open_generator()
        generator.loop.start(on_error)
        return generator

    def open_batch(self) -> Batch[Any]:
        """Generate for prompts that arrive over time, together, in the calling thread.

        See `Batch`: `add` takes a prompt at any time, `step` returns new chunks.
        """
        return Batch(self._open_generator(), self.complete_options)

    def prepare(
        self, progress: Progress | None = None, *, seconds: float | None = None
    ) -> CostCurve:
        """Measure the cost of passes and compile static shapes now, instead of during use.

        The measurement takes two seconds, or 5 % of the loading time, unless the user's cache
        folder has it from an earlier process. Each static shape takes about as long as loading.
        progress: called with the fraction done, first of the one and then of the other. seconds:
        measure in any case, for this time; above 0. Raises `OptionError`, and `SessionError` while
        a generation is running.
        """
        loop = self._open_generator().loop
        with loop.alone():
            if self._costs is None:  # another thread may have closed the pipeline meanwhile
                raise SessionError(CLOSED)
            self._costs.prepare(progress, seconds)
            for shapes in loop.engine.shapes.values():
                shapes.complete(progress)
            return self._costs.curve

    def check_batch_invariant(self, progress: Progress | None = None) -> BatchInvariance:
        """Check on this machine whether passes are batch-invariant, unless that is known.

        It takes some forty passes, and the user's cache folder keeps the result. If logits differ,
        passes have their usual form from then on. progress: called with the fraction done. Raises
        `SessionError` while a generation is running.
        """
        with self._open_generator().loop.alone():
            return self._invariance.check(progress)

    def complete_options(self, **options: Unpack[GenerationKwargs]) -> GenerationOptions:
        """These options with defaults for all others.

        generation_config: a `transformers.GenerationConfig` that replaces the pipeline's defaults.
        Options of transformers without an effect are dropped: see `FOREIGN`.
        """
        return self._complete(drop_neutral(options))

    def _complete(self, given: dict[str, Any]) -> GenerationOptions:
        """The same for options without foreign ones."""
        return complete(given, self._defaults, self._open_generator().text_to_text)

    def save_cache(self, path: str | Path) -> None:
        """Write KV caches to files, for `load_cache` of a later process.

        A long system prompt then needs no prefill. It saves the last generation with
        `cache_prompt`, under its `cache_salt`, of which the files contain a digest. path: the main
        model's file (safetensors); a draft model's file is next to it, `prompt.draft.safetensors`
        for `prompt.safetensors`, after a prefill of what its cache lacks. Raises `OptionError`, and
        `SessionError` while a generation is running and on a closed pipeline.
        """
        generator = self._open_generator()
        with generator.loop.alone():
            save_caches(self._open_models(), generator, path)

    def load_cache(self, path: str | Path, *, cache_salt: str | None = None) -> None:
        """Load KV caches that `save_cache` wrote.

        The next generation prefills only the rest of its prompt. cache_salt: of the saved
        generation; only generations with the same salt reuse it. A draft model whose cache was not
        saved prefills everything. Raises `OptionError` for files that cannot be read, have another
        salt, or were made with other models, properties, KV backend, machine or OpenVINO version,
        and `SessionError` while a generation is running and on a closed pipeline.
        """
        if cache_salt is not None:
            require_text("cache_salt", cache_salt)
        generator = self._open_generator()
        with generator.loop.alone():
            load_caches(self._open_models(), generator, path, cache_salt)

    def close(self) -> None:
        """Free the models. Running generations end within one pass."""
        if self._generator is not None:
            self._generator.loop.close()
            for shapes in self._generator.loop.engine.shapes.values():
                shapes.close()
        self._invariance.close()
        self._generator = self._costs = None
        self._models = []

    def _open_models(self) -> list[LoadedModel]:
        if not self._models:  # another thread may close the pipeline at any time
            raise SessionError(CLOSED)
        return self._models

    def _open_generator(self) -> TextGenerator:
        if self._generator is None:
            raise SessionError(CLOSED)
        return self._generator

    def __enter__(self) -> "SpeculativePipeline":
        return self

    def __repr__(self) -> str:
        if not self._models:
            return "SpeculativePipeline(closed)"
        main, *draft = (f"'{model.folder.path}'" for model in self._models)
        arguments = [main, *draft, f"drafter='{self.drafter}'", f"kv='{self.main.kv}'"]
        return f"SpeculativePipeline({', '.join(arguments)})"

    def __exit__(self, *error: object) -> None:
        self.close()
