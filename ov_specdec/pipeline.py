"""`SpeculativePipeline`, the Python interface: a main model, a drafter, and text from both."""

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from ov_specdec.arguments import (
    check_devices,
    check_drafter,
    check_limits,
    may_tune,
    pair_models,
)
from ov_specdec.background import Background
from ov_specdec.batch import Batch
from ov_specdec.checks import require_choice, require_text
from ov_specdec.chunks import GenerationResult, collect
from ov_specdec.drafters.factory import DrafterFactory, DrafterKind, DrafterName
from ov_specdec.drafters.pairing import DraftModel, Pairing
from ov_specdec.engine import Engine, EngineLoop
from ov_specdec.errors import CLOSED, DeviceError, Option, OptionError, SessionError
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
from ov_specdec.loading.compile import LoadedModel, load_models
from ov_specdec.loading.devices import Precision
from ov_specdec.loading.generation_config import (
    GenerationConfigUse,
    SamplingDefaults,
    defaults_of,
    read_sampling_defaults,
)
from ov_specdec.loading.invariance import (
    SLOWER,
    WantedInvariance,
    check_wanted,
    configure,
    open_invariance,
)
from ov_specdec.loading.kept_costs import kept_costs
from ov_specdec.loading.memory_limit import limit_memory
from ov_specdec.loading.pass_agreement import verifiable
from ov_specdec.loading.runtime_config import KvBackend, RuntimeConfig
from ov_specdec.loading.static_shapes import StaticShapes as WantedShapes
from ov_specdec.loading.static_shapes import check_sizes
from ov_specdec.options import GenerationOptions
from ov_specdec.pipeline_models import make_static_shapes, open_sources, take_profile
from ov_specdec.planning.costs import CostCurve, KeptCosts, Progress
from ov_specdec.planning.schedule import LearnedStats
from ov_specdec.saved_cache import load_caches, save_caches
from ov_specdec.stats import BatchInvariance, Stopwatch
from ov_specdec.text.guard import GuardReport
from ov_specdec.text.pairing import PairingName, UsedPairing
from ov_specdec.text.prompt import Prompt, take_prompt

if sys.version_info >= (3, 11):
    from typing import Unpack
else:
    from typing_extensions import Unpack


@name_missing(OF_PIPELINES)
@refuse_foreign({**dict.fromkeys(GenerationKwargs.__annotations__, OF_GENERATION), **OF_MODELS})
class SpeculativePipeline:
    """Generates the main model's own text, faster, with draft tokens from a drafter.

    main, draft: folders that `ov-specdec export` wrote, or names of OpenVINO models on the Hub;
    both None take the embedded pair. drafter: "model", the default where there is a draft model;
    "suffix", the default for a main model alone (what followed the longest match in
    prompt, output, reference texts and earlier outputs; no draft model); "both" (suffix, and the
    draft model where that promises more); "prompt-lookup" (the latest match of three tokens; no
    draft model); "none" (plain decoding); or a `DrafterKind` of your own. pairing: lets a draft
    with another tokenizer draft all the same: "intersection" by the tokens that both vocabularies
    have, "retokenize" by its text, encoded anew, "auto" by whichever suits the two; `pairing` then
    is the one in use, None where the tokenizers are the same. device, draft_device: OpenVINO
    devices; the draft runs on the main's unless told otherwise, and so do the encoders of
    encoder-decoder models: encoder_device. kv: how KV caches are kept; "auto" takes "paged" where
    it can. precision: "exact" is f32 with nothing quantized but weights. properties: OpenVINO
    properties for both models; draft_properties: those of the draft that differ.
    num_threads: CPU threads of each model. cache_dir: folder for compiled models, which then load
    faster the next time; `load_seconds` says how long it took. profile: what `ov-specdec tune`
    measured to be the best properties: "auto" takes it up where there is one and nothing of that
    kind is given, "none" does not, and a file is that profile; `profile` then is its path.
    max_hidden_tokens: stale entries that a stateful KV cache keeps hidden before it is trimmed; 0
    trims at every rollback. static_shapes: see `StaticShapes`. generation_config: whether options
    that a generation is not given are those that the main model's generation_config.json recommends
    for sampling ("model"), or decoding is greedy unless they say otherwise ("none").
    chat_template: a Jinja file, in place of the main model's own template.
    batch_invariant: whether the main model's logits are bitwise the same in whatever passes they
    are computed, so that a text is the same with any drafter or none, alone or beside others, on
    fresh or kept caches: "auto" wherever it can be (`batch_invariant` says so, and why), True or an
    error, in the fastest precision that this machine has for it, False for passes without that
    care.

    Generations that run at once, from several threads or by `generate_batch`, share passes.
    max_batch_size: most of them at a time; others wait. kv_cache_size: memory for the KV caches of
    both models, in GB, on each of their devices, which is taken as it is needed; None: enough for
    so many of the greatest length, or half of the memory that is free. When it is used up, the
    newest one is suspended; its output is the same. max_model_len: tokens that prompt and output
    may have together; None: the main model's context. max_prefill_tokens_per_step: tokens of
    prompts that a pass reads while others are being answered.

    Encoder-decoder models work in the same way: the prompt is what their encoders read. A draft has
    an encoder of its own, or shares the main's: where it has the same weights, or none. Their
    generations run one after the other.

    Raises `OptionError`, `ModelError`, `DeviceError`, and `TokenizerMismatchError` where draft and
    main do not share a tokenizer and no pairing is given, or none is possible. `close`, or the end
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
        tunes = may_tune(profile, *configs)

        sources = open_sources(main, draft, kind, chat_template)
        paired: Pairing | None = None
        self.guard_report: GuardReport | None = None
        self.profile: Path | None = None
        self.pairing: UsedPairing | None = None
        if len(sources) > 1:
            self.guard_report, paired = pair_models(sources, pairing)
            self.pairing = paired.name if paired else None
            if tunes:
                self.profile, configs = take_profile(profile, sources, configs)

        vocab_size, begins = sources[0].vocab_size, sources[0].text_to_text()
        self._defaults = SamplingDefaults()
        if generation_config == "model":
            path = sources[0].folder.path
            self._defaults = read_sampling_defaults(path, vocab_size=vocab_size)
        others = SLOWER if precision == "default" and not properties else ()
        configs[0], off = configure(batch_invariant, sources[0].folder, configs[0], others)
        if configs[0].precision != precision:  # in place of what the profile says
            self.profile = None
        # Main first, then the draft where there is one; empty once the pipeline is closed.
        vocab_sizes = [source.vocab_size for source in sources]
        to_load = list(zip(sources, configs, vocab_sizes, strict=False))
        self._models = load_models(to_load)
        self.drafter = kind.name
        self.tokenizer = sources[0].tokenizer
        self.load_seconds = watch.total()
        limit_memory(self._models, kv_cache_size, max_batch_size)
        self._models = verifiable(self._models, to_load)
        self._invariance = open_invariance(self.main, off)
        if batch_invariant is True and not self._invariance.check().is_proven:
            raise DeviceError(Option("batch_invariant", True), f": {self.batch_invariant.reason}")
        compare = self._invariance.compare
        self._costs: KeptCosts | None = kept_costs(self._models, self.load_seconds, compare)
        draft_runner = self.draft.runner if self.draft else None
        shapes = make_static_shapes(self._models, self._costs, kind)
        engine = Engine(self.main.runner, draft_runner, limits, self._costs, shapes)
        self._generator: TextGenerator | None = TextGenerator(
            self.main.runner,
            EngineLoop(engine),
            self.tokenizer,
            vocab_size,
            sources[0].eos_token_ids,
            DrafterFactory(kind, DraftModel(draft_runner, paired) if draft_runner else None),
            LearnedStats(self._costs),
            text_to_text=begins,
            invariance=self._invariance,
        )

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
        """The draft model, where the drafter has one."""
        return self._models[1] if len(self._models) > 1 else None

    @property
    def costs(self) -> CostCurve:
        """What passes cost, as far as it is known: a curve of no sweeps is imagined.

        Raises `SessionError` once the pipeline is closed.
        """
        if self._costs is None:
            raise SessionError(CLOSED)
        return self._costs.curve

    def generate(
        self, prompt: Prompt | None = None, **options: Unpack[GenerationKwargs]
    ) -> GenerationResult:
        """Generate to the end. Prompt and options: see `stream`."""
        with self.stream(prompt, **options) as chunks:
            return collect(chunks)

    def stream(
        self, prompt: Prompt | None = None, **options: Unpack[GenerationKwargs]
    ) -> GenerationStream:
        """Generate, and yield chunks as they come; the last one has the finish reason and stats.

        prompt: a text, token ids, or messages: [{"role": "user", "content": "Hello"}]. A text is
        the user's message where the model has a chat template. Among messages, this pipeline's own
        answers are read with the ids that were generated. What a tokenizer of transformers returns
        is a prompt too, as one argument or as `**inputs`. options: see `GenerationOptions`; and a
        `transformers.GenerationConfig` as `generation_config`.

        Prompt and options are checked at once; raises `OptionError`, and `ModelError` for a chat
        template that is broken. `cancel` and `close` of what is returned end the generation.
        """
        generator = self._open_generator()
        asked, given = take_prompt(prompt, options)
        return generator.stream(asked, self.complete_options(**given))

    def generate_batch(
        self,
        prompts: Sequence[Prompt],
        options: Sequence[Mapping[str, Any]] | None = None,
        **shared: Unpack[GenerationKwargs],
    ) -> list[GenerationResult]:
        """Generate for several prompts at once; the results in their order.

        prompts: each as `stream` takes it. options: for each prompt, those that differ from the
        `shared` ones. All are checked first. Each output is what the prompt would get alone; up to
        `max_batch_size` of them share passes, the others wait. Raises the error that the first one
        ends with, after which the others are cancelled.
        """
        generator = self._open_generator()
        if isinstance(prompts, str) or not isinstance(prompts, Sequence):
            raise OptionError(Option("prompts", prompts), " must be a list of prompts")
        own = [{} for _ in prompts] if options is None else list(options)
        if len(own) != len(prompts):
            raise OptionError(f"{len(own)} options were given for {len(prompts)} prompts")
        checked = [self.complete_options(**{**shared, **each}) for each in own]
        return generator.batch(list(zip(prompts, checked, strict=True)))

    def background(self, on_error: Callable[[Exception], None]) -> Background:
        """Generations that a thread of its own runs, for servers. on_error: see `EngineLoop`.

        Its generations share passes with those of `stream` and `generate`.
        """
        return Background(self._open_generator(), on_error)

    def open_batch(self) -> Batch[Any]:
        """Generate for prompts that come one after the other, together, in the calling thread.

        See `Batch`: `add` takes a prompt at any time, `step` returns what came of them.
        """
        return Batch(self._open_generator(), self.complete_options)

    def prepare(
        self, progress: Progress | None = None, *, seconds: float | None = None
    ) -> CostCurve:
        """Do at once what else is done in use: measure what passes cost, compile static shapes.

        The first takes two seconds, or 5 % of the time that loading took, where it is not known
        from an earlier process; it is kept in the user's cache folder. Each static shape takes
        about as long as loading did. progress: told of the share that is done, of the one and then
        of the other. seconds: measure in any case, and for so long; more than 0. Raises
        `OptionError`, and `SessionError` while a generation is running.
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
        """See on this machine whether passes are invariant, where that is not known.

        It takes some forty passes; what was seen is kept in the user's cache folder. Where logits
        differ, passes have their usual form from then on. progress: told of the share that is done.
        Raises `SessionError` while a generation is running.
        """
        with self._open_generator().loop.alone():
            return self._invariance.check(progress)

    def complete_options(self, **options: Unpack[GenerationKwargs]) -> GenerationOptions:
        """All options of a generation that is given these: with the defaults for the others.

        generation_config: a `transformers.GenerationConfig`, in place of the pipeline's defaults.
        Options of transformers that change nothing are dropped, see `FOREIGN`.
        """
        config = options.pop("generation_config", None)
        given, defaults = drop_neutral(options), self._defaults
        if config is not None:
            begins = self._open_generator().text_to_text
            start = begins.decoder_start_token_id if begins else None
            defaults = defaults_of(config, given, start)
        return GenerationOptions.from_kwargs(defaults.complete(given))

    def save_cache(self, path: str | Path) -> None:
        """Write what the KV caches have kept into files, for `load_cache` of a later process.

        A long system prompt then need not be read again. Written is the last generation with
        `cache_prompt` on, under its `cache_salt`: the files have a digest of that. path: the main
        model's file (safetensors); a draft model's goes beside it, `prompt.draft.safetensors`
        beside `prompt.safetensors`, and that model first reads what it has not read yet. Raises
        `OptionError`, and `SessionError` while a generation is running and on a closed pipeline.
        """
        generator = self._open_generator()
        with generator.loop.alone():
            save_caches(self._open_models(), generator, path)

    def load_cache(self, path: str | Path, *, cache_salt: str | None = None) -> None:
        """Have the KV caches hold what `save_cache` has written.

        The next generation then reads only what its prompt goes on with. cache_salt: that of the
        generation which was saved; only generations with the same find what is loaded. A draft
        model without a file, where the cache was saved without one, reads everything. Raises
        `OptionError` for files that cannot be read, were saved under another salt, or were made
        with other models, another machine, OpenVINO version, KV backend or other properties, and
        `SessionError` while a generation is running and on a closed pipeline.
        """
        if cache_salt is not None:
            require_text("cache_salt", cache_salt)
        generator = self._open_generator()
        with generator.loop.alone():
            load_caches(self._open_models(), generator, path, cache_salt)

    def close(self) -> None:
        """Free the models. Generations that are running end within one pass."""
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

    def __exit__(self, *error: object) -> None:
        self.close()
