"""Loads models as visitors choose them, one pair at a time."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ov_specdec.baseline import plain_options
from ov_specdec.pipeline import SpeculativePipeline
from ov_specdec.speculation.drafters.factory import DrafterName

WARM_UP_PROMPTS = (
    "import json\n\n\ndef load(path):\n",
    "for name in names:\n    print(name)\n\n",
)
"""Texts to continue before the first visitor comes: ordinary ones, and none of the page's.

The adaptive draft length times 3 plain rounds and then 4 with candidates, at most 23 tokens, and
chooses a length from what they took; so 48 tokens of each text are enough to settle. Measured with
the embedded pair on two busy cores: the first run was 1.4 to 2.4 times as fast as plain decoding in
8 of 8 fresh processes. After 48 tokens that continue a single one it was 0.7 to 2.1 times as fast.
"""
MAX_WARM_UPS = 3
"""How often to continue all texts, as long as most rounds go without candidates.

They should where speculation does not pay, but they also do where another program has taken the
cores while the first candidates were timed.
"""
WARM_UP: dict[str, Any] = {"max_new_tokens": 48, "ignore_eos": True}
WARM_UP_PLAIN = plain_options({**WARM_UP, "max_new_tokens": 8})


@dataclass(frozen=True)
class Choice:
    """A drafter, and the devices of both models; prompt lookup alone has no use for the second."""

    drafter: DrafterName
    device: str
    draft_device: str


class LoadedModels:
    """Holds the models that were asked for last.

    main, draft: folders or Hub names; None takes the embedded pair. arguments: for every
    `SpeculativePipeline`, beside what visitors choose. Only one thread at a time may use it, but
    for `close`.
    """

    def __init__(self, main: str | None, draft: str | None, arguments: Mapping[str, Any]) -> None:
        self._main = main
        self._draft = draft
        self._arguments = arguments
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


def warm_up(pipeline: SpeculativePipeline) -> None:
    """Let OpenVINO prepare its passes, and the draft length settle, before somebody looks."""
    pipeline.generate(WARM_UP_PROMPTS[0], **WARM_UP_PLAIN)
    for _ in range(MAX_WARM_UPS):
        rounds = [
            round_
            for prompt in WARM_UP_PROMPTS
            for round_ in pipeline.generate(prompt, **WARM_UP).stats.rounds
        ]
        if 2 * sum(round_.num_drafted > 0 for round_ in rounds) > len(rounds):
            return


def describe(pipeline: SpeculativePipeline) -> str:
    """The KV caches and the profile in a line."""
    models = [("main", pipeline.main)]
    if pipeline.draft is not None:
        models.append(("draft", pipeline.draft))
    caches = ", ".join(f"{name} {model.kv} ({model.reason})" for name, model in models)
    # Its name alone: where it lies is no concern of a visitor from elsewhere.
    profile = "none" if pipeline.profile is None else pipeline.profile.name
    return f"KV cache: {caches}. Profile: {profile}."
