"""The Python interface: a main model, a drafter, and text from both."""

from collections.abc import Generator as PythonGenerator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from pathlib import Path
from threading import Lock
from typing import Any, Literal, get_args

from ov_specdec.checks import require_choice
from ov_specdec.config import GenerationOptions
from ov_specdec.devices import Precision
from ov_specdec.drafters import Cascade, Drafter, ModelDrafter, PromptLookup
from ov_specdec.errors import OptionError, SessionError
from ov_specdec.generator import Chunk, GenerationResult, Generator, collect
from ov_specdec.guard import GuardReport
from ov_specdec.loading import KvBackend, LoadedModel, RuntimeConfig, load_models
from ov_specdec.locate import embedded_folder, locate
from ov_specdec.profile import find_profile
from ov_specdec.rules import Rule
from ov_specdec.source import ModelSource, check_pair, open_source
from ov_specdec.stats import Stopwatch

WITH_DRAFT = ("model", "both")
WITH_LOOKUP = ("prompt-lookup", "both")
DrafterName = Literal["model", "prompt-lookup", "both", "none"]


class SpeculativePipeline:
    """Generates the main model's own text, faster, with candidates from a drafter.

    main, draft: folders that `ov-specdec export` wrote, or names of OpenVINO models on the Hub;
    both None take the embedded pair. drafter: "model", "prompt-lookup" (no draft model), "both"
    (prompt lookup, and the draft model where nothing matches) or "none" (plain decoding). device,
    draft_device: OpenVINO devices; the draft runs on the main's unless told otherwise. kv: how KV
    caches are kept; "auto" takes "paged" where it can. precision: "exact" makes speculative output
    equal plain output token for token. properties: OpenVINO properties for both models;
    draft_properties: those of the draft that differ. num_threads: CPU threads of each model.
    cache_dir: folder for compiled models, which then load faster the next time; `load_seconds`
    says how long it took. profile: what `ov-specdec tune` measured to be the best properties:
    "auto" takes it up where there is one and nothing of that kind is given, "none" does not, and a
    file is that profile; `profile` then is its path. max_hidden_tokens: stale entries that a
    stateful KV cache keeps hidden before it is trimmed; 0 trims at every rollback.

    Raises `OptionError`, `ModelError`, `DeviceError`, and `TokenizerMismatchError` where draft and
    main do not share a tokenizer. One generation runs at a time.
    """

    def __init__(
        self,
        main: str | Path | None = None,
        draft: str | Path | None = None,
        *,
        drafter: DrafterName = "model",
        device: str = "CPU",
        draft_device: str | None = None,
        kv: KvBackend = "auto",
        precision: Precision = "default",
        properties: Mapping[str, str] | None = None,
        draft_properties: Mapping[str, str] | None = None,
        max_hidden_tokens: int | None = None,
        num_threads: int | None = None,
        cache_dir: str | Path | None = None,
        profile: str | Path = "auto",
    ) -> None:
        watch = Stopwatch()
        _check_drafter(drafter, main, draft, draft_device)
        config = RuntimeConfig(
            device, kv, precision, properties, max_hidden_tokens, num_threads, cache_dir
        )
        draft_config = replace(
            config,
            device=draft_device or device,
            properties={**(properties or {}), **(draft_properties or {})},
        )

        main_source = open_source(embedded_folder("main") if main is None else locate(main))
        draft_source: ModelSource | None = None
        self.guard_report: GuardReport | None = None
        if drafter in WITH_DRAFT:
            draft_source = open_source(embedded_folder("draft") if draft is None else locate(draft))
            self.guard_report = check_pair(main_source, draft_source)
            self.guard_report.require()

        self.profile: Path | None = None
        if draft_source is not None and _may_tune(profile, config, draft_config):
            found = find_profile(profile, main_source.folder, draft_source.folder, device)
            if found is not None:
                self.profile, tuned = found
                config = replace(config, properties=tuned.main_properties)
                draft_config = replace(draft_config, properties=tuned.draft_properties)
        vocab_size = main_source.vocab_size
        self.drafter: DrafterName = drafter
        models = [(main_source, config)]
        if draft_source is not None:
            models.append((draft_source, draft_config))
        self.main, *drafts = load_models(models, vocab_size=vocab_size)
        self.draft: LoadedModel | None = drafts[0] if drafts else None
        self.tokenizer = main_source.tokenizer
        self._generator = Generator(
            self.main.session,
            self.tokenizer,
            vocab_size,
            main_source.eos_token_ids,
            self._make_drafter,
        )
        self._running = Lock()
        self.load_seconds = watch.total()

    def generate(self, prompt_or_ids: str | Sequence[int], **options: Any) -> GenerationResult:
        """Generate to the end. Options: see `GenerationOptions`."""
        return collect(self.stream(prompt_or_ids, **options))

    def stream(
        self, prompt_or_ids: str | Sequence[int], **options: Any
    ) -> PythonGenerator[Chunk, None, None]:
        """Generate, and yield chunks as they come; the last one has the finish reason and stats.

        Prompt and options are checked at once; to close the stream ends the generation. Options:
        see `GenerationOptions`.
        """
        chunks = self._generator.stream(prompt_or_ids, GenerationOptions.from_kwargs(options))
        return self._alone(chunks)

    def _alone(self, chunks: Iterator[Chunk]) -> PythonGenerator[Chunk, None, None]:
        """Pass chunks on, while no other generation may use the sessions."""
        if not self._running.acquire(blocking=False):
            raise SessionError(
                "another generation is running on this pipeline: read or close it first, or make "
                "a second pipeline"
            )
        try:
            yield from chunks
        finally:
            self._running.release()

    def _make_drafter(self, options: GenerationOptions, rule: Rule) -> Drafter | None:
        if options.num_assistant_tokens == 0:
            return None
        self._check_use(options)
        drafters: list[Drafter] = []
        if self.drafter in WITH_LOOKUP:
            limits = options.max_matching_ngram_size, options.prompt_lookup_num_tokens
            drafters.append(PromptLookup(*limits))
        if self.draft is not None:
            drafters.append(ModelDrafter(self.draft.session, rule))
        return reduce(Cascade, drafters) if drafters else None

    def _check_use(self, options: GenerationOptions) -> None:
        """Refuse options that this pipeline's drafter has no use for."""
        needs = {
            "prompt_lookup_num_tokens": WITH_LOOKUP,
            "max_matching_ngram_size": WITH_LOOKUP,
            "assistant_confidence_threshold": WITH_DRAFT,
        }
        for name, drafters in needs.items():
            if getattr(options, name) and self.drafter not in drafters:
                raise OptionError(
                    f"{name} needs drafter={' or '.join(map(repr, drafters))}, not {self.drafter!r}"
                )
        if self.drafter == "none" and options.num_assistant_tokens != "auto":
            raise OptionError(
                f"num_assistant_tokens={options.num_assistant_tokens} needs a drafter: "
                "this pipeline was made with drafter='none'"
            )


def _may_tune(profile: str | Path, main: RuntimeConfig, draft: RuntimeConfig) -> bool:
    """Whether a profile may say how to compile: not where the caller has said so already."""
    free = replace(main, precision="default", properties=None, num_threads=None)
    if main == free and not draft.properties and draft.device == main.device:
        return True
    if profile not in ("auto", "none"):
        raise OptionError(
            f"profile='{profile}' has no effect where precision, properties, num_threads or "
            "draft_device are given: leave out one of the two"
        )
    return False


def _check_drafter(
    drafter: str, main: str | Path | None, draft: str | Path | None, draft_device: str | None
) -> None:
    """Refuse drafters that do not exist, lack their model, or have no use for the one given."""
    require_choice("drafter", drafter, get_args(DrafterName))
    if drafter in WITH_DRAFT and main is not None and draft is None:
        raise OptionError(
            f"no draft model for main '{main}': give draft=FOLDER, or choose drafter="
            "'prompt-lookup' or 'none'"
        )
    for name, value in (("draft", draft), ("draft_device", draft_device)):
        if drafter not in WITH_DRAFT and value is not None:
            raise OptionError(f"{name}='{value}' has no use with drafter={drafter!r}: leave it out")
