"""Loads the models that visitors choose, one pair at a time."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Lock
from typing import Any, NamedTuple

from ov_specdec.drafters.factory import WITH_DRAFT, DrafterName
from ov_specdec.options.generation import PLAIN
from ov_specdec.pipeline import SpeculativePipeline
from ov_specdec.text.pairing import PairingName

WARM_UP_PROMPT = "import json\n\n\ndef load(path):\n"


class ModelChoice(NamedTuple):
    """A drafter, and the devices of both models; the second is unused without a draft model."""

    drafter: DrafterName
    device: str
    draft_device: str


class LoadedModels:
    """Holds the models of the last run, and lends them to one run at a time.

    main, draft: folders or Hub names; None takes the embedded pair. arguments: for every
    `SpeculativePipeline`, besides the visitor's choices. pairing: for those with the draft model.
    """

    def __init__(
        self,
        main: str | None,
        draft: str | None,
        arguments: Mapping[str, Any],
        pairing: PairingName | None = None,
    ) -> None:
        self._main, self._draft = main, draft
        self._arguments, self._pairing = arguments, pairing
        self._held: tuple[ModelChoice, SpeculativePipeline] | None = None
        self._lock = Lock()  # a cancelled run may still be in its last pass when the next begins

    @contextmanager
    def lend(self, choice: ModelChoice) -> Iterator[SpeculativePipeline]:
        """The pipeline, loaded if needed. Raises the errors of `SpeculativePipeline`."""
        with self._lock:
            if self._held is None or self._held[0] != choice:
                self.close()  # memory may not suffice for two pairs
                self._held = choice, self._load(choice)
            yield self._held[1]

    def _load(self, choice: ModelChoice) -> SpeculativePipeline:
        drafts = choice.drafter in WITH_DRAFT
        # The draft runs on the main's device by default; naming it would disable profiles.
        differs = drafts and choice.draft_device != choice.device
        pipeline = SpeculativePipeline(
            self._main,
            self._draft if drafts else None,
            drafter=choice.drafter,
            pairing=self._pairing if drafts else None,
            device=choice.device,
            draft_device=choice.draft_device if differs else None,
            reasoning_parser="none",  # both texts are shown as they come
            **self._arguments,
        )
        pipeline.prepare()
        pipeline.check_batch_invariant()
        for own in (PLAIN, {}):  # each kind of run once, before the first visitor
            pipeline.generate(WARM_UP_PROMPT, max_new_tokens=24, ignore_eos=True, **own)
        return pipeline

    def close(self) -> None:
        """Free the models, from any thread. A running generation ends within one pass."""
        held, self._held = self._held, None
        if held is not None:
            held[1].close()


def describe(pipeline: SpeculativePipeline) -> str:
    """The KV caches, the profile and the pairing in a line."""
    models = [("main", pipeline.main), ("draft", pipeline.draft)]
    caches = ", ".join(f"{name} {own.kv} ({own.reason})" for name, own in models if own is not None)
    # Only the name: remote visitors should not see paths.
    profile = "none" if pipeline.profile is None else pipeline.profile.name
    pairing = "" if pipeline.pairing is None else f" Pairing: {pipeline.pairing}."
    return f"KV cache: {caches}. Profile: {profile}.{pairing}"
