"""Loads models as visitors choose them, one pair at a time."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ov_specdec.baseline import plain_options
from ov_specdec.drafters.factory import WITH_DRAFT, DrafterName
from ov_specdec.pipeline import SpeculativePipeline
from ov_specdec.text.pairing import PairingName

WARM_UP: dict[str, Any] = {"max_new_tokens": 24, "ignore_eos": True}
WARM_UP_PROMPT = "import json\n\n\ndef load(path):\n"


@dataclass(frozen=True)
class Choice:
    """A drafter, and the devices of both models; without a draft model the second has no use."""

    drafter: DrafterName
    device: str
    draft_device: str


class LoadedModels:
    """Holds the models that were asked for last.

    main, draft: folders or Hub names; None takes the embedded pair. arguments: for every
    `SpeculativePipeline`, beside what visitors choose. pairing: for those with the draft model.
    Only one thread at a time may use it, but for `close`.
    """

    def __init__(
        self,
        main: str | None,
        draft: str | None,
        arguments: Mapping[str, Any],
        pairing: PairingName | None = None,
    ) -> None:
        self._main = main
        self._draft = draft
        self._arguments = arguments
        self._pairing = pairing
        self._choice: Choice | None = None
        self._pipeline: SpeculativePipeline | None = None
        self._closed = False

    @property
    def description(self) -> str:
        """What is loaded, in a line; empty where nothing is."""
        return "" if self._pipeline is None else describe(self._pipeline)

    @property
    def has_chat_template(self) -> bool:
        """Whether what is loaded can keep a conversation."""
        pipeline = self._pipeline
        return pipeline is not None and pipeline.tokenizer.chat_template is not None

    def holds(self, choice: Choice) -> bool:
        """Whether `get` will return at once."""
        return self._pipeline is not None and self._choice == choice

    def get(self, choice: Choice) -> SpeculativePipeline:
        """The pipeline, loaded if need be. Raises what `SpeculativePipeline` raises."""
        if self._pipeline is None or self._choice != choice:
            # There may not be memory for two pairs.
            self._release()
            self._pipeline = pipeline = self._load(choice)
            self._choice = choice
            if self._closed:  # while they were being loaded
                self._release()
            warm_up(pipeline)
        return self._pipeline

    def close(self) -> None:
        """Free the models for good. A generation that is running ends within one pass."""
        self._closed = True
        self._release()

    def _release(self) -> None:
        if self._pipeline is not None:
            self._pipeline.close()
            self._pipeline = None

    def _load(self, choice: Choice) -> SpeculativePipeline:
        drafts = choice.drafter in WITH_DRAFT
        # The draft runs on the main's device by default; to name it would keep profiles away.
        differs = drafts and choice.draft_device != choice.device
        return SpeculativePipeline(
            self._main,
            self._draft if drafts else None,
            drafter=choice.drafter,
            pairing=self._pairing if drafts else None,
            device=choice.device,
            draft_device=choice.draft_device if differs else None,
            **self._arguments,
        )


def warm_up(pipeline: SpeculativePipeline) -> None:
    """Measure what passes cost, and have OpenVINO prepare its passes, before somebody looks."""
    pipeline.prepare()
    pipeline.check_batch_invariant()
    pipeline.generate(WARM_UP_PROMPT, **plain_options(WARM_UP))
    pipeline.generate(WARM_UP_PROMPT, **WARM_UP)


def describe(pipeline: SpeculativePipeline) -> str:
    """The KV caches, the profile and the pairing in a line."""
    models = [("main", pipeline.main)]
    if pipeline.draft is not None:
        models.append(("draft", pipeline.draft))
    caches = ", ".join(f"{name} {model.kv} ({model.reason})" for name, model in models)
    # Its name alone: where it lies is no concern of a visitor from elsewhere.
    profile = "none" if pipeline.profile is None else pipeline.profile.name
    pairing = "" if pipeline.pairing is None else f" Pairing: {pipeline.pairing}."
    return f"KV cache: {caches}. Profile: {profile}.{pairing}"
