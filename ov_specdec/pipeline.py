"""The Python interface: a main model, a drafter, and text from both."""

import hashlib
import sys
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event, Lock
from typing import get_args

from ov_specdec.cache.store import read_sequence, write_sequence
from ov_specdec.checks import require_choice, require_text, require_texts
from ov_specdec.costs import CostCurve, KeptCosts, Progress
from ov_specdec.errors import OptionError, SessionError
from ov_specdec.files import user_cache
from ov_specdec.generation import (
    Chunk,
    GenerationResult,
    GenerationStream,
    TextGenerator,
    collect,
)
from ov_specdec.loading.compile import KvBackend, LoadedModel, RuntimeConfig, load_models
from ov_specdec.loading.devices import Precision, usable_cores
from ov_specdec.loading.generation_config import (
    GenerationConfigUse,
    SamplingDefaults,
    read_sampling_defaults,
)
from ov_specdec.loading.locate import embedded_folder, locate
from ov_specdec.loading.profile import find_profile
from ov_specdec.loading.source import ModelSource, check_pair, open_source, pair_tokenizers
from ov_specdec.options import GenerationKwargs, GenerationOptions
from ov_specdec.speculation.drafters.factory import WITH_DRAFT, DrafterFactory, DrafterName
from ov_specdec.speculation.drafters.pairing import DraftModel, draft_model, paired_model
from ov_specdec.speculation.schedule import LearnedStats
from ov_specdec.stats import Stopwatch
from ov_specdec.text.guard import GuardReport
from ov_specdec.text.pairing import PairingName, TokenizerPair, UsedPairing
from ov_specdec.text.prompt import Prompt

if sys.version_info >= (3, 11):
    from typing import Unpack
else:
    from typing_extensions import Unpack


CLOSED = "this pipeline is closed: make a new one"

MEASURING_SHARE, MEASURING_SECONDS = 0.05, 2.0
"""Time for measuring what passes cost: a part of loading, or so many seconds where that is more."""


class SpeculativePipeline:
    """Generates the main model's own text, faster, with candidates from a drafter.

    main, draft: folders that `ov-specdec export` wrote, or names of OpenVINO models on the Hub;
    both None take the embedded pair. drafter: "model", "prompt-lookup" (no draft model), "both"
    (prompt lookup, and the draft model where nothing matches) or "none" (plain decoding). pairing:
    lets a draft with another tokenizer draft all the same: "intersection" by the tokens that both
    vocabularies have, "retokenize" by its text, encoded anew, "auto" by whichever suits the two;
    `pairing` then is the one in use, None where the tokenizers are the same. device,
    draft_device: OpenVINO devices; the draft runs on the main's unless told otherwise. kv: how
    KV caches are kept; "auto" takes "paged" where it can. precision: "exact" makes speculative
    output equal plain output token for token. properties: OpenVINO properties for both models;
    draft_properties: those of the draft that differ. num_threads: CPU threads of each model.
    cache_dir: folder for compiled models, which then load faster the next time; `load_seconds`
    says how long it took. profile: what `ov-specdec tune` measured to be the best properties:
    "auto" takes it up where there is one and nothing of that kind is given, "none" does not,
    and a file is that profile; `profile` then is its path. max_hidden_tokens: stale entries
    that a stateful KV cache keeps hidden before it is trimmed; 0 trims at every rollback.
    generation_config: whether options that a generation is not given are those that the main
    model's generation_config.json recommends for sampling ("model"), or decoding is greedy
    unless they say otherwise ("none").

    Raises `OptionError`, `ModelError`, `DeviceError`, and `TokenizerMismatchError` where draft
    and main do not share a tokenizer and no pairing is given, or none is possible. One
    generation runs at a time. `close`, or the end of a `with` block, frees the models.
    """

    def __init__(
        self,
        main: str | Path | None = None,
        draft: str | Path | None = None,
        *,
        drafter: DrafterName = "model",
        pairing: PairingName | None = None,
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
        generation_config: GenerationConfigUse = "none",
    ) -> None:
        watch = Stopwatch()
        require_choice("generation_config", generation_config, get_args(GenerationConfigUse))
        _check_drafter(drafter, main, draft, draft_device, draft_properties, pairing)
        if not isinstance(profile, str | Path):
            raise OptionError(f"profile={profile!r} must be 'auto', 'none' or a file")
        config = RuntimeConfig(
            device, kv, precision, properties, max_hidden_tokens, num_threads, cache_dir
        )
        draft_config = replace(
            config,
            device=device if draft_device is None else draft_device,
            properties={**(properties or {}), **(draft_properties or {})},
        )
        may_tune = _may_tune(profile, config, draft_config)

        sources = _open_sources(main, draft, drafter)
        tokenizers: TokenizerPair | None = None
        self.guard_report: GuardReport | None = None
        self.profile: Path | None = None
        self.pairing: UsedPairing | None = None
        configs = [config, draft_config][: len(sources)]
        if len(sources) > 1:
            self.guard_report = check_pair(*sources)
            if pairing is None:
                self.guard_report.require()
            elif not self.guard_report.compatible:
                tokenizers = pair_tokenizers(*sources)
                self.pairing = tokenizers.choose(pairing)
            folders = [source.folder for source in sources]
            if may_tune and (found := find_profile(profile, folders[0], folders[1], device, kv)):
                self.profile, tuned = found
                configs = [
                    replace(config, properties=tuned.main_properties),
                    replace(draft_config, properties=tuned.draft_properties),
                ]

        vocab_size = sources[0].vocab_size
        self._defaults = SamplingDefaults()
        if generation_config == "model":
            path = sources[0].folder.path
            self._defaults = read_sampling_defaults(path, vocab_size=vocab_size)
        # Main first, then the draft where there is one; empty once the pipeline is closed.
        sizes = [source.vocab_size for source in sources]
        self._models = load_models(list(zip(sources, configs, sizes, strict=True)))
        self.drafter: DrafterName = drafter
        self.tokenizer = sources[0].tokenizer
        self.load_seconds = watch.total()
        self._costs: KeptCosts | None = self._make_costs()
        self._drafts = self._make_drafts(tokenizers)
        self._generator: TextGenerator | None = TextGenerator(
            self.main.cache,
            self.tokenizer,
            vocab_size,
            sources[0].eos_token_ids,
            DrafterFactory(drafter, self._drafts),
            LearnedStats(self._costs),
        )
        self._running = Lock()
        self._cancelled = Event()
        """That of the newest generation."""

    @property
    def main(self) -> LoadedModel:
        """The main model. Raises `SessionError` once the pipeline is closed."""
        if not self._models:
            raise SessionError(CLOSED)
        return self._models[0]

    @property
    def draft(self) -> LoadedModel | None:
        """The draft model, where the drafter has one."""
        return self._models[1] if len(self._models) > 1 else None

    def generate(self, prompt: Prompt, **options: Unpack[GenerationKwargs]) -> GenerationResult:
        """Generate to the end. Prompt and options: see `stream`."""
        with self.stream(prompt, **options) as chunks:
            return collect(chunks)

    def stream(self, prompt: Prompt, **options: Unpack[GenerationKwargs]) -> GenerationStream:
        """Generate, and yield chunks as they come; the last one has the finish reason and stats.

        prompt: a text, token ids, or messages: [{"role": "user", "content": "Hello"}]. A text is
        the user's message where the model has a chat template. Among messages, this pipeline's own
        answers are read with the ids that were generated. options: see `GenerationOptions`.

        Prompt and options are checked at once; raises `OptionError`, and `ModelError` for a chat
        template that is broken. `cancel` and `close` of what is returned end the generation.
        """
        checked = self.complete_options(**options)
        if self._generator is None:
            raise SessionError(CLOSED)
        cancelled = Event()
        chunks = self._generator.stream(prompt, checked, cancelled)
        return GenerationStream(self._alone(chunks, cancelled), cancelled)

    def prepare(
        self, progress: Progress | None = None, *, seconds: float | None = None
    ) -> CostCurve:
        """Measure what passes cost, where that is not known from an earlier process.

        Else the first generation that leaves the draft length to "auto" does so. It takes two
        seconds, or 5 % of the time that loading took; the result is kept in the user's cache
        folder. progress: told of the share that is done. seconds: measure in any case, and for so
        long. Raises `SessionError` while a generation is running.
        """
        with self._exclusive():
            if self._costs is None:
                raise SessionError(CLOSED)
            return self._costs.prepare(progress, seconds)

    def _make_drafts(self, tokenizers: TokenizerPair | None) -> DraftModel | None:
        """The draft model, which is told what to hold in the main model's ids."""
        if self.draft is None:
            return None
        if tokenizers is None or self.pairing is None:
            return draft_model(self.draft.cache)
        return paired_model(self.draft.cache, tokenizers, self.pairing)

    def _make_costs(self) -> KeptCosts:
        """What passes of these models cost, kept under what their times depend on."""
        caches = [model.cache for model in self._models]
        parts = [str(usable_cores()), *(model.fingerprint() for model in self._models)]
        digest = hashlib.sha256("\n".join(parts).encode())
        cache = user_cache()
        return KeptCosts(
            caches[0],
            caches[1] if len(caches) > 1 else None,
            None if cache is None else cache / "costs" / f"{digest.hexdigest()[:16]}.json",
            max(MEASURING_SHARE * self.load_seconds, MEASURING_SECONDS),
        )

    def complete_options(self, **options: Unpack[GenerationKwargs]) -> GenerationOptions:
        """All options of a generation that is given these: with the defaults for the others."""
        return GenerationOptions.from_kwargs(self._defaults.complete(options))

    def save_cache(self, path: str | Path) -> None:
        """Write what the KV caches hold into files, for `load_cache` of a later process.

        A long system prompt then need not be read again. path: the main model's file (safetensors);
        a draft model's goes beside it, `prompt.draft.safetensors` beside `prompt.safetensors`, and
        that model first reads what it has not read yet. Raises `OptionError`, and `SessionError`
        while a generation is running and on a closed pipeline.
        """
        with self._exclusive():
            files = self._cache_files(path)
            main, _ = files[0]
            for draft, _ in files[1:]:
                tokens = main.cache.tokens[: draft.cache.max_length]
                if tokens and self._drafts is not None and self._drafts.cache.room(tokens) > 0:
                    self._drafts.cache.begin(tokens)
                    self._drafts.cache.advance(tokens)
            for model, file in files:
                write_sequence(file, model.cache, model.fingerprint())

    def load_cache(self, path: str | Path) -> None:
        """Have the KV caches hold what `save_cache` has written.

        The next generation then reads only what its prompt goes on with. Raises `OptionError` for
        files that cannot be read, or were made with other models, another machine, OpenVINO
        version, KV backend or other properties, and `SessionError` while a generation is running
        and on a closed pipeline.
        """
        with self._exclusive():
            for model, file in self._cache_files(path):
                read_sequence(file, model.cache, model.fingerprint())

    def _cache_files(self, path: str | Path) -> list[tuple[LoadedModel, Path]]:
        """The models and their files, the main model's first."""
        models = self._models  # another thread may close the pipeline meanwhile
        if not models:
            raise SessionError(CLOSED)
        if not isinstance(path, str | Path):
            raise OptionError(f"path={path!r} must be a file")
        main = Path(path)
        files = [main, main.with_name(f"{main.stem}.draft{main.suffix}")]
        return list(zip(models, files, strict=False))

    def close(self) -> None:
        """Free the models. A generation that is running ends within one pass."""
        self._cancelled.set()
        self._generator = self._costs = None
        self._models = []

    def __enter__(self) -> "SpeculativePipeline":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _alone(
        self, chunks: Generator[Chunk, None, None], cancelled: Event
    ) -> Generator[Chunk, None, None]:
        """Pass chunks on, while no other generation may use the sessions."""
        with self._exclusive():
            self._cancelled = cancelled
            if self._generator is None:
                cancelled.set()
            yield from chunks

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Keep the sessions from every other generation; `SessionError` if one has them."""
        if not self._running.acquire(blocking=False):
            raise SessionError(
                "another generation is running on this pipeline: read or close it first, or make "
                "a second pipeline"
            )
        try:
            yield
        finally:
            self._running.release()


def _open_sources(
    main: str | Path | None, draft: str | Path | None, drafter: str
) -> list[ModelSource]:
    """The main model, and the draft model where the drafter has one, as read from their folders."""
    chosen = {"main": main, "draft": draft} if drafter in WITH_DRAFT else {"main": main}
    return [
        open_source(embedded_folder(role) if name is None else locate(name))
        for role, name in chosen.items()
    ]


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
    drafter: str,
    main: str | Path | None,
    draft: str | Path | None,
    draft_device: str | None,
    draft_properties: Mapping[str, str] | None,
    pairing: PairingName | None,
) -> None:
    """Refuse drafters that do not exist, lack their model, or have no use for the one given."""
    require_choice("drafter", drafter, get_args(DrafterName))
    if pairing is not None:
        require_choice("pairing", pairing, get_args(PairingName))
    if draft_device is not None:
        require_text("draft_device", draft_device)
    if draft_properties is not None:
        require_texts("draft_properties", draft_properties)
    for name, model in (("main", main), ("draft", draft)):
        if model is not None and not isinstance(model, str | Path):
            raise OptionError(f"{name}={model!r} must be a folder or a name on the Hub")
    if drafter in WITH_DRAFT and main is not None and draft is None:
        raise OptionError(
            f"no draft model for main='{main}': give draft=FOLDER, or choose drafter="
            "'prompt-lookup' or drafter='none'"
        )
    given = (
        ("draft", draft),
        ("draft_device", draft_device),
        ("draft_properties", draft_properties),
        ("pairing", pairing),
    )
    for name, value in given:
        if drafter not in WITH_DRAFT and value:
            raise OptionError(f"{name}={value!r} has no use with drafter={drafter!r}: leave it out")
