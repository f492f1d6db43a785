"""The actions of the page's buttons: they yield states to show, each with a status line."""

from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter
from typing import Literal

from ov_specdec.demo.cancellation import Cancellation
from ov_specdec.demo.comparison import Comparison, compare
from ov_specdec.demo.conversation import Conversation
from ov_specdec.demo.models import Choice, LoadedModels
from ov_specdec.demo.queue import LOADING, RunQueue, State, States
from ov_specdec.demo.settings import Settings
from ov_specdec.demo.sweep import NUM_STEPS, Point, sweep
from ov_specdec.drafters.factory import DrafterName
from ov_specdec.errors import OptionError, shorten
from ov_specdec.pipeline import SpeculativePipeline

SHOW_EVERY = 0.06
"""Seconds between updates of a run: the page shares the cores with the models."""

SEED_DIGITS = 18
"""Python refuses to parse numbers of thousands of digits."""

Work = Callable[[SpeculativePipeline, Settings, Cancellation], States[State]]


@dataclass(frozen=True)
class Form:
    """The values of the controls, in their order on the page.

    prompt: a text to continue, or a conversation whose last message is to be answered. system: the
    system message of a conversation.
    """

    prompt: str | Conversation
    max_new_tokens: float
    drafter: DrafterName
    draft_length: int | Literal["auto"]
    temperature: float
    top_p: float
    top_k: float
    seed: str
    device: str
    draft_device: str
    system: str = ""

    @property
    def settings(self) -> Settings:
        """Prompt and settings; sliders return whole numbers as floats."""
        prompt = self.prompt
        return Settings(
            prompt.prompt(self.system) if isinstance(prompt, Conversation) else prompt,
            int(self.max_new_tokens),
            self.draft_length,
            self.temperature,
            self.top_p,
            int(self.top_k),
            self._seed,
        )

    @property
    def _seed(self) -> int | None:
        text = self.seed.strip()
        if text and not (text.isdecimal() and len(text) <= SEED_DIGITS):
            raise OptionError(
                f"seed {shorten(text)} must be a whole number of up to {SEED_DIGITS} digits, or "
                "left empty"
            )
        return int(text) if text else None

    @property
    def choice(self) -> Choice:
        """The drafter and devices."""
        return Choice(self.drafter, self.device, self.draft_device)


@dataclass(frozen=True)
class DemoService:
    """The models, shared by all visitors and used by one run at a time, and the runs."""

    models: LoadedModels
    queue: RunQueue = field(default_factory=RunQueue)

    def compare(self, visitor: str, form: Form) -> States[Comparison]:
        """States of a comparison, at a rate that can be seen."""
        return self._in_turn(visitor, form, Comparison(models=self.models.description), _compare)

    def example(self, form: Form) -> Comparison:
        """The comparison that visitors see first."""
        *_, (comparison, _) = self.compare("example", form)
        return comparison

    def sweep(self, visitor: str, form: Form) -> States[list[Point]]:
        """Points of the sweep as they come."""
        return self._in_turn(visitor, form, [], _sweep)

    def cancel(self, visitor: str) -> None:
        """End the visitor's running generations within one pass, and waiting ones at once."""
        self.queue.cancel(visitor)

    def close(self) -> None:
        """End all runs, and free the models."""
        self.queue.cancel_all()
        self.models.close()

    def _in_turn(self, visitor: str, form: Form, state: State, work: Work[State]) -> States[State]:
        """Wait for earlier runs, load models if needed, and run `work`.

        state: shown meanwhile. Raises `OptionError` and errors of loading.
        """
        settings = form.settings

        def run(cancellation: Cancellation) -> States[State]:
            if not self.models.holds(form.choice):
                yield state, LOADING
            if not cancellation.is_set():
                yield from work(self.models.get(form.choice), settings, cancellation)

        yield from self.queue.run(visitor, state, run)


def _compare(
    pipeline: SpeculativePipeline, settings: Settings, cancellation: Cancellation
) -> States[Comparison]:
    shown = 0.0
    for comparison in compare(pipeline, settings, cancellation):
        if perf_counter() - shown >= SHOW_EVERY:
            yield comparison, progress(comparison)
            shown = perf_counter()


def _sweep(
    pipeline: SpeculativePipeline, settings: Settings, cancellation: Cancellation
) -> States[list[Point]]:
    for number, points in enumerate(sweep(pipeline, settings, cancellation), start=1):
        yield points, f"{number} of {NUM_STEPS}: temperature {points[-1].temperature}."


def progress(comparison: Comparison) -> str:
    """Which of the two runs is in progress."""
    if comparison.speculative.outcome == "not started":
        return "1 of 2: plain decoding."
    return "2 of 2: speculative decoding."
