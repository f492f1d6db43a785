"""Loads the models that visitors choose, one pair at a time."""

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
    """A drafter, and the devices of both models; the second is unused without a draft model."""

    drafter: DrafterName
    device: str
    draft_device: str


class LoadedModels:
    """Holds the models of the last request.

    main, draft: folders or Hub names; None takes the embedded pair. arguments: for every
    `SpeculativePipeline`, besides the visitor's choices. pairing: for those with the draft model.
    Not thread-safe, except for `close`.
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
        """The loaded models, in a line; empty if there are none."""
        return "" if self._pipeline is None else describe(self._pipeline)

    @property
    def has_chat_template(self) -> bool:
        """Whether the loaded main model has a chat template."""
        pipeline = self._pipeline
        return pipeline is not None and pipeline.tokenizer.chat_template is not None

    def holds(self, choice: Choice) -> bool:
        """Whether `get` will return at once."""
        return self._pipeline is not None and self._choice == choice

    def get(self, choice: Choice) -> SpeculativePipeline:
        """The pipeline, loaded if needed. Raises the errors of `SpeculativePipeline`."""
        if self._pipeline is None or self._choice != choice:
            # Memory may not suffice for two pairs.
            self._release()
            self._pipeline = pipeline = self._load(choice)
            self._choice = choice
            if self._closed:  # during loading
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
        # The draft runs on the main's device by default; naming it would disable profiles.
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
    """Measure the cost of passes, and run each kind once, before the first visitor."""
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
    # Only the name: remote visitors should not see paths.
    profile = "none" if pipeline.profile is None else pipeline.profile.name
    pairing = "" if pipeline.pairing is None else f" Pairing: {pipeline.pairing}."
    return f"KV cache: {caches}. Profile: {profile}.{pairing}"
