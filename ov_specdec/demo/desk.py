"""What visitors ask for with a button: states to show, and a line on what goes on."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from time import perf_counter
from typing import Literal

from ov_specdec.demo.comparison import Comparison, compare
from ov_specdec.demo.models import Choice, ModelShelf
from ov_specdec.demo.settings import Settings
from ov_specdec.demo.stops import Stops
from ov_specdec.demo.sweep import NUM_STEPS, Point, sweep
from ov_specdec.errors import OptionError
from ov_specdec.speculation.drafters.factory import DrafterName

SHOW_EVERY = 0.06
"""Seconds between two pictures of a run: the page shares the cores with the models."""

LOADING = "Loading models \N{HORIZONTAL ELLIPSIS}"


@dataclass(frozen=True)
class Form:
    """The values of the controls, in their order on the page."""

    prompt: str
    max_new_tokens: float
    drafter: DrafterName
    draft_length: int | Literal["auto"]
    temperature: float
    top_p: float
    top_k: float
    seed: str
    device: str
    draft_device: str

    @property
    def settings(self) -> Settings:
        """How to continue the prompt; sliders give whole numbers as floats, too."""
        return Settings(
            self.prompt,
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
        if text and not text.isdecimal():
            raise OptionError(f"seed '{text}' must be a whole number from 0, or left empty")
        return int(text) if text else None

    @property
    def choice(self) -> Choice:
        """Which models to take."""
        return Choice(self.drafter, self.device, self.draft_device)


@dataclass(frozen=True)
class Desk:
    """What all visitors share: the models, used by one run at a time, and each one's flag."""

    shelf: ModelShelf
    stops: Stops = field(default_factory=Stops)

    def compare(self, visitor: str, form: Form) -> Iterator[tuple[Comparison, str]]:
        """States of a comparison with what to say about them, not more often than can be seen."""
        wish = self.stops.watch(visitor)
        if not self.shelf.holds(form.choice):
            yield Comparison(), LOADING
        pipeline = self.shelf.get(form.choice)
        shown = 0.0
        comparison = Comparison()
        for comparison in compare(pipeline, form.settings, wish.is_set):
            if perf_counter() - shown >= SHOW_EVERY:
                yield comparison, _progress(comparison)
                shown = perf_counter()
        yield comparison, "Stopped." if wish.is_set() else "Done."

    def sweep(self, visitor: str, form: Form) -> Iterator[tuple[list[Point], str]]:
        """Points of the sweep as they come."""
        wish = self.stops.watch(visitor)
        points: list[Point] = []
        if not self.shelf.holds(form.choice):
            yield points, LOADING
        steps = sweep(self.shelf.get(form.choice), form.settings, wish.is_set)
        for number, points in enumerate(steps, start=1):
            yield points, f"{number} of {NUM_STEPS}: temperature {points[-1].temperature}."
        yield points, "Stopped." if wish.is_set() else "Done."


def _progress(comparison: Comparison) -> str:
    if comparison.speculative.outcome == "waiting":
        return "1 of 2: plain decoding."
    return "2 of 2: speculative decoding."
