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
        self._arguments = arguments
        self._pairing = pairing
        self._choice: ModelChoice | None = None
        self._pipeline: SpeculativePipeline | None = None
        self._closed = False
        self._lock = Lock()  # a cancelled run may still be in its last pass when the next begins

    def holds(self, choice: ModelChoice) -> bool:
        """Whether these models are loaded."""
        return self._pipeline is not None and self._choice == choice

    @contextmanager
    def lend(self, choice: ModelChoice) -> Iterator[SpeculativePipeline]:
        """The pipeline, loaded if needed. Raises the errors of `SpeculativePipeline`."""
        with self._lock:
            if self._pipeline is None or self._choice != choice:
                self._release()  # memory may not suffice for two pairs
                drafts = choice.drafter in WITH_DRAFT
                # The draft runs on the main's device by default; naming it would disable profiles.
                differs = drafts and choice.draft_device != choice.device
                self._pipeline = pipeline = SpeculativePipeline(
                    self._main,
                    self._draft if drafts else None,
                    drafter=choice.drafter,
                    pairing=self._pairing if drafts else None,
                    device=choice.device,
                    draft_device=choice.draft_device if differs else None,
                    **self._arguments,
                )
                self._choice = choice
                if self._closed:  # during loading
                    self._release()
                pipeline.prepare()
                pipeline.check_batch_invariant()
                for own in (PLAIN, {}):  # each kind of run once, before the first visitor
                    pipeline.generate(WARM_UP_PROMPT, max_new_tokens=24, ignore_eos=True, **own)
            yield self._pipeline

    def close(self) -> None:
        """Free the models for good, from any thread. A running generation ends within one pass."""
        self._closed = True
        self._release()

    def _release(self) -> None:
        if self._pipeline is not None:
            self._pipeline.close()
            self._pipeline = None


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
