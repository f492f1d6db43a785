"""Loads models as visitors choose them, one pair at a time."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ov_specdec.baseline import plain_options
from ov_specdec.pipeline import SpeculativePipeline
from ov_specdec.speculation.drafters.factory import DrafterName

WARM_UP = {"max_new_tokens": 48, "ignore_eos": True}


@dataclass(frozen=True)
class Choice:
    """A drafter, and the devices of both models; prompt lookup alone has no use for the second."""

    drafter: DrafterName
    device: str
    draft_device: str


class ModelShelf:
    """Holds the models that were asked for last.

    main, draft: folders or Hub names; None takes the embedded pair. arguments: for every
    `SpeculativePipeline`, beside what visitors choose. Only one thread at a time may use it.
    """

    def __init__(self, main: str | None, draft: str | None, arguments: Mapping[str, Any]) -> None:
        self._main = main
        self._draft = draft
        self._arguments = arguments
        self._held: tuple[Choice, SpeculativePipeline] | None = None

    def holds(self, choice: Choice) -> bool:
        """Whether `get` will return at once."""
        return self._held is not None and self._held[0] == choice

    def get(self, choice: Choice) -> SpeculativePipeline:
        """The pipeline, loaded if need be. Raises what `SpeculativePipeline` raises."""
        if self._held is not None and self.holds(choice):
            return self._held[1]
        # Let go of the old models first: there may not be memory for both.
        self._held = None
        pipeline = self._load(choice)
        # OpenVINO prepares for every new size of pass; that is not what is to be compared.
        for options in (plain_options(WARM_UP), WARM_UP):
            pipeline.generate([0], **options)
        self._held = choice, pipeline
        return pipeline

    def _load(self, choice: Choice) -> SpeculativePipeline:
        drafts = choice.drafter != "prompt-lookup"
        # The draft runs on the main's device by default; to name it would keep profiles away.
        differs = drafts and choice.draft_device != choice.device
        return SpeculativePipeline(
            self._main,
            self._draft if drafts else None,
            drafter=choice.drafter,
            device=choice.device,
            draft_device=choice.draft_device if differs else None,
            **self._arguments,
        )
