"""`SpeculativePipeline`, the Python interface: a main model, a drafter, and text from both."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from typing_extensions import Self, Unpack

from ov_specdec.errors import CLOSED, OptionError, SessionError, shorten
from ov_specdec.generation.batch import Batch
from ov_specdec.generation.pipeline import make_generator, open_models
from ov_specdec.generation.pipeline_options import PipelineOptions
from ov_specdec.generation.saved_cache import load_caches, save_caches
from ov_specdec.generation.text_generator import GenerationStream, TextGenerator
from ov_specdec.models.compile import LoadedModel
from ov_specdec.models.exported import pair_models
from ov_specdec.models.generation_config import defaults_of, read_sampling_defaults
from ov_specdec.options.conflicts import fill
from ov_specdec.options.foreign_names import drop_neutral
from ov_specdec.options.generation import GenerationOptions
from ov_specdec.options.kwargs import GenerationKwargs, PipelineKwargs
from ov_specdec.options.model import require
from ov_specdec.planning.costs import CostCurve, Progress
from ov_specdec.results.chunks import GenerationResult, collect
from ov_specdec.results.stats import BatchInvariance
from ov_specdec.text.prompt import Prompt


class Pipeline:
    """Loaded models and the generator that runs on them, until `close`, or the end of `with`."""

    _generator: TextGenerator | None  # None once the pipeline is closed

    @property
    def main(self) -> LoadedModel:
        """The main model. Raises `SessionError` once the pipeline is closed."""
        return self._open_generator().models[0]

    @property
    def draft(self) -> LoadedModel | None:
        """The draft model, if the drafter has one."""
        return next(iter(self._open_generator().models[1:]), None)

    @property
    def costs(self) -> CostCurve:
        """The cost curve of passes, as learned so far; before the first one it is nominal.

        Raises `SessionError` once the pipeline is closed.
        """
        return self._open_generator().sequences.learned.costs.curve

    def prepare(
        self, progress: Progress | None = None, *, seconds: float | None = None
    ) -> CostCurve:
        """Measure the cost of passes and compile static shapes now, instead of during use.

        That is a few passes of each size, for at most two seconds, unless the user's cache folder
        has them from an earlier process. Each static shape takes about as long as loading.
        progress: called with the fraction done, first of the one and then of the other. seconds:
        run passes in any case, for this time; above 0. Raises `OptionError`, and `SessionError`
        while a generation is running.
        """
        self.measure_costs(progress, seconds=seconds)
        loop = self._open_generator().loop
        with loop.alone():
            for shapes in loop.engine.shapes.values():
                shapes.complete(progress)
        return self.costs

    def measure_costs(
        self, progress: Progress | None = None, *, seconds: float | None = None
    ) -> CostCurve:
        """The first part of `prepare`: no static shapes are compiled."""
        generator = self._open_generator()
        costs = generator.sequences.learned.costs
        with generator.loop.alone():
            costs.prepare(progress, seconds)
            return costs.curve

    def close(self) -> None:
        """Free the models. Running generations end within one pass."""
        if self._generator is not None:
            self._generator.close()
        self._generator = None

    def _open_generator(self) -> TextGenerator:
        if self._generator is None:
            raise SessionError(CLOSED)
        return self._generator

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class SpeculativePipeline(Pipeline):
    """Generates the main model's own text, faster, with draft tokens from a drafter.

    main, draft: folders that `ov-specdec export` wrote, or names of OpenVINO models on the Hub;
    both None take the embedded pair. options: see `PipelineOptions`.

    Attributes tell what was chosen: `drafter`; `pairing` (None if the tokenizers are the same);
    `profile`, a path; `batch_invariant`, and why; `load_seconds`.

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
        **options: Unpack[PipelineKwargs],
    ) -> None:
        began = perf_counter()
        known = drop_neutral(options, PipelineOptions.model_fields)
        given = PipelineOptions(main=main, draft=draft, **known)
        exported = open_models(given, given.chat_template)
        self._defaults: dict[str, Any] = {}
        if given.generation_config == "model":
            first = exported[0]
            first.text_to_text()  # refuses a model for speech, whose file has other options too
            self._defaults = read_sampling_defaults(first.folder.path, vocab_size=first.vocab_size)
        self.drafter = given.kind.name
        self.tokenizer = exported[0].tokenizer
        self.guard_report, pairing = pair_models(exported, given.pairing)
        self.pairing = pairing.used if pairing else None
        made = make_generator(exported, pairing, given)
        self._generator, self._invariance, self.profile = made
        self.load_seconds = perf_counter() - began

    @classmethod
    def from_pretrained(
        cls,
        main: str | Path | None = None,
        draft: str | Path | None = None,
        **options: Unpack[PipelineKwargs],
    ) -> Self:
        """The constructor, under the name that it has in transformers."""
        return cls(main, draft, **options)

    @property
    def batch_invariant(self) -> BatchInvariance:
        """Whether a token's logits are bitwise the same in any pass of the main model, and why."""
        return self._invariance.status

    def generate(
        self,
        prompt: Prompt | None = None,
        options: GenerationOptions | None = None,
        **named: Unpack[GenerationKwargs],
    ) -> GenerationResult:
        """Generate to the end. Prompt and options: see `stream`."""
        with self.stream(prompt, options, **named) as chunks:
            return collect(chunks)

    def stream(
        self,
        prompt: Prompt | None = None,
        options: GenerationOptions | None = None,
        **named: Unpack[GenerationKwargs],
    ) -> GenerationStream:
        """Generate, and yield chunks as they come; the last one has the finish reason and stats.

        prompt: a text, token ids, or messages: [{"role": "user", "content": "Hello"}]. If the model
        has a chat template, a text is the user's message. Answers of this pipeline among messages
        keep their generated ids. The output of a transformers tokenizer is a prompt too, as one
        argument or as `**inputs`. options: as an object. named: by name, over those: see
        `GenerationOptions`; and a `transformers.GenerationConfig` as `generation_config`.

        Prompt and options are checked at once; raises `OptionError`, and `ModelError` for a broken
        chat template. `cancel` and `close` of the returned stream end the generation.
        """
        generator = self._open_generator()
        asked, given = _take_prompt(prompt, named)
        return generator.stream(asked, self.complete_options(options, **given))

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
        if not _is_list(prompts) or any("role" in p for p in prompts if isinstance(p, Mapping)):
            raise OptionError(
                "{prompts} must be a list of prompts: of texts, of lists of ids, or of lists of "
                "messages",
                prompts=prompts,
            )
        own: Sequence[Mapping[str, Any]] = [{}] * len(prompts) if options is None else options
        if not _is_list(own):
            raise OptionError(
                "{options} must be a list of mappings, one for each prompt: give what they share "
                "by name",
                options=options,
            )
        if len(own) != len(prompts):
            raise OptionError(f"{len(own)} options were given for {len(prompts)} prompts")
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

    def check_batch_invariant(self, progress: Progress | None = None) -> BatchInvariance:
        """Check on this machine whether passes are batch-invariant, unless that is known.

        It takes forty passes, and the user's cache folder keeps the result. Without a call, it runs
        by itself between generations, while the machine is idle. If logits differ, passes have
        their usual form from then on. progress: called with the fraction done. Raises
        `SessionError` while a generation is running.
        """
        with self._open_generator().loop.alone():
            return self._invariance.verify(progress)

    def complete_options(
        self, options: GenerationOptions | None = None, **named: Unpack[GenerationKwargs]
    ) -> GenerationOptions:
        """These options with defaults for all others.

        generation_config: a `transformers.GenerationConfig` that replaces the pipeline's defaults.
        Options of transformers without an effect are dropped: see `foreign_names`.
        """
        defaults, known = self._defaults, GenerationOptions.model_fields.keys()
        # As in transformers, None counts as not given.
        own = {k: v for k, v in named.items() if v is not None or k not in known}
        if not own.keys() <= known:
            own = drop_neutral(own)
        if (config := own.pop("generation_config", None)) is not None:
            start = self._open_generator().prompts.text_to_text
            defaults = defaults_of(config, own, start.decoder_start_token_id if start else None)
        if options is not None:
            if not isinstance(options, GenerationOptions):
                raise OptionError(
                    f"{shorten(options)} has no name: options are given by name, such as "
                    "max_new_tokens=64, and a GenerationConfig as generation_config"
                )
            own = {name: getattr(options, name) for name in options.model_fields_set} | own
        return GenerationOptions(**fill(own, defaults))

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
            save_caches(generator, path)

    def load_cache(self, path: str | Path, *, cache_salt: str | None = None) -> None:
        """Load KV caches that `save_cache` wrote.

        The next generation prefills only the rest of its prompt. cache_salt: of the saved
        generation; only generations with the same salt reuse it. A draft model whose cache was not
        saved prefills everything. Raises `OptionError` for files that are damaged, have another
        salt, or were made with other models, properties, KV backend, machine or OpenVINO version,
        and `SessionError` while a generation is running and on a closed pipeline.
        """
        if cache_salt is not None:
            require("cache_salt", cache_salt, str)
        generator = self._open_generator()
        with generator.loop.alone():
            load_caches(generator, path, cache_salt)

    def __repr__(self) -> str:
        if self._generator is None:
            return "SpeculativePipeline(closed)"
        main, *draft = (f"'{model.folder.path}'" for model in self._generator.models)
        arguments = [main, *draft, f"drafter='{self.drafter}'", f"kv='{self.main.kv}'"]
        return f"SpeculativePipeline({', '.join(arguments)})"


def complete_request(
    pipeline: SpeculativePipeline, options: GenerationOptions
) -> GenerationOptions:
    """The options of a request with all defaults: it samples by default, as in vLLM."""
    complete = pipeline.complete_options(options)
    if complete.temperature is None:  # the model recommends none
        return pipeline.complete_options(options, temperature=1.0)
    return complete


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _take_prompt(
    prompt: Prompt | None, options: Mapping[str, Any]
) -> tuple[Prompt, dict[str, Any]]:
    """Take a prompt from the options, where transformers has it. Returns it and the other options.

    Raises `OptionError` if there is no prompt, or more than one.
    """
    others = dict(options)
    mask = others.pop("attention_mask", None)
    asked = [prompt, others.pop("inputs", None), others.pop("input_ids", None)]
    prompts = [each for each in asked if each is not None]
    if len(prompts) != 1:
        given = f"the prompt is given {len(prompts)} times" if prompts else "there is no prompt"
        raise OptionError(f"{given}: give one, such as generate('Hello')")
    return prompts[0] if mask is None else {"input_ids": prompts[0], "attention_mask": mask}, others
