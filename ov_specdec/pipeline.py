"""The Python interface: a main model, a drafter, and text from both."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any, Literal, get_args

from ov_specdec.checks import require_choice
from ov_specdec.config import GenerationOptions
from ov_specdec.devices import Precision
from ov_specdec.drafters import Drafter, ModelDrafter, PromptLookup
from ov_specdec.errors import OptionError, SessionError
from ov_specdec.generator import Chunk, GenerationResult, Generator, collect
from ov_specdec.guard import GuardReport
from ov_specdec.loading import KvBackend, LoadedModel, RuntimeConfig, load_model
from ov_specdec.locate import embedded_folder, locate
from ov_specdec.rules import Rule
from ov_specdec.source import ModelSource, check_pair, open_source

DrafterName = Literal["model", "prompt-lookup", "none"]


class SpeculativePipeline:
    """Generates the main model's own text, faster, with candidates from a drafter.

    main, draft: folders that `ov-specdec export` wrote, or names of OpenVINO models on the Hub;
    both None take the embedded pair. drafter: "model", "prompt-lookup" (no draft model) or "none"
    (plain decoding). device, draft_device: OpenVINO devices; the draft runs on the main's unless
    told otherwise. kv: how KV caches are kept; "auto" takes "paged" where it can. precision:
    "exact" makes speculative output equal plain output token for token. properties: OpenVINO
    properties for both models. max_hidden_tokens: stale entries that a stateful KV cache keeps
    hidden before it is trimmed; 0 trims at every rollback.

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
        max_hidden_tokens: int | None = None,
    ) -> None:
        _check_drafter(drafter, main, draft, draft_device)
        config = RuntimeConfig(device, kv, precision, properties, max_hidden_tokens)
        draft_config = replace(config, device=draft_device or device)

        main_source = open_source(embedded_folder("main") if main is None else locate(main))
        draft_source: ModelSource | None = None
        self.guard_report: GuardReport | None = None
        if drafter == "model":
            draft_source = open_source(embedded_folder("draft") if draft is None else locate(draft))
            self.guard_report = check_pair(main_source, draft_source)
            self.guard_report.require()

        vocab_size = main_source.vocab_size
        self.drafter: DrafterName = drafter
        self.main: LoadedModel = load_model(main_source, config, vocab_size=vocab_size)
        self.draft: LoadedModel | None = None
        if draft_source is not None:
            self.draft = load_model(draft_source, draft_config, vocab_size=vocab_size)
        self.tokenizer = main_source.tokenizer
        self._generator = Generator(
            self.main.session,
            self.tokenizer,
            vocab_size,
            main_source.eos_token_ids,
            self._make_drafter,
        )
        self._running = Lock()

    def generate(self, prompt_or_ids: str | Sequence[int], **options: Any) -> GenerationResult:
        """Generate to the end. Options: see `GenerationOptions`."""
        return collect(self.stream(prompt_or_ids, **options))

    def stream(self, prompt_or_ids: str | Sequence[int], **options: Any) -> Iterator[Chunk]:
        """Generate, and yield chunks as they come; the last one has the finish reason and stats.

        Prompt and options are checked at once. Options: see `GenerationOptions`.
        """
        chunks = self._generator.stream(prompt_or_ids, GenerationOptions.from_kwargs(options))
        return self._alone(chunks)

    def _alone(self, chunks: Iterator[Chunk]) -> Iterator[Chunk]:
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
        if self.drafter == "prompt-lookup":
            return PromptLookup(options.max_matching_ngram_size, options.prompt_lookup_num_tokens)
        for name in ("prompt_lookup_num_tokens", "max_matching_ngram_size"):
            if getattr(options, name) is not None:
                raise OptionError(f"{name} needs drafter='prompt-lookup', not {self.drafter!r}")
        if self.draft is None:
            if options.num_assistant_tokens != "auto":
                raise OptionError(
                    f"num_assistant_tokens={options.num_assistant_tokens} needs a drafter: "
                    "this pipeline was made with drafter='none'"
                )
            return None
        return ModelDrafter(self.draft.session, rule)


def _check_drafter(
    drafter: str, main: str | Path | None, draft: str | Path | None, draft_device: str | None
) -> None:
    """Refuse drafters that do not exist, lack their model, or have no use for the one given."""
    require_choice("drafter", drafter, get_args(DrafterName))
    if drafter == "model" and main is not None and draft is None:
        raise OptionError(
            f"no draft model for main '{main}': give draft=FOLDER, or choose drafter="
            "'prompt-lookup' or 'none'"
        )
    for name, value in (("draft", draft), ("draft_device", draft_device)):
        if drafter != "model" and value is not None:
            raise OptionError(f"{name}='{value}' has no use with drafter={drafter!r}: leave it out")
