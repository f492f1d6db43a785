"""Coordinate search for the best properties, each value against the best so far."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ov_specdec.errors import DeviceError
from ov_specdec.tuning.passes import PassCosts

Properties = Mapping[str, str]

PRECISION_HINT = "INFERENCE_PRECISION_HINT"
CHOICES: Mapping[str, tuple[str, ...]] = {
    PRECISION_HINT: ("f32", "bf16", "f16"),
    "DYNAMIC_QUANTIZATION_GROUP_SIZE": ("0", "32", "128"),
    "KV_CACHE_PRECISION": ("u8", "f16", "f32"),
}
"""Values to try for each property, besides OpenVINO's default and numbers of threads."""

GAIN = 0.97
"""A value is taken if its score is below this fraction of the best so far, to ignore noise."""


def describe_settings(properties: Properties) -> str:
    """Properties in one line."""
    return " ".join(f"{key}={value}" for key, value in properties.items()) or "defaults"


@dataclass(frozen=True)
class Trial:
    """Settings, with the cost of passes."""

    properties: Properties
    costs: PassCosts


@dataclass(frozen=True)
class Refused:
    """Settings that the device refuses."""

    properties: Properties
    why: str


@dataclass(frozen=True)
class Found:
    """OpenVINO's defaults, and the best settings found.

    others: scores of all other settings relative to that of the defaults; lower is better.
    """

    default: Trial
    best: Trial
    others: Sequence[tuple[Properties, float]] = ()

    def reason(self) -> str:
        """Why the defaults were kept, or the speedup of the best settings."""
        scores = {str(properties): score for properties, score in self.others}
        if self.best.properties:
            gain = 1.0 / scores.get(str(self.best.properties), 1.0)
            return f"{gain:.2f} times as fast as the defaults in the search"
        if not self.others:
            return "no other settings were tried"
        properties, score = min(self.others, key=lambda other: other[1])
        name = " ".join(f"{key}={value}" for key, value in properties.items())
        return (
            f"the best of {len(self.others)} other settings, {name}, was "
            f"{1.0 / score:.2f} times as fast in the search, but not {1.0 / GAIN:.2f} times in two "
            "measurements"
        )


def search(
    measure: Callable[[Properties], PassCosts],
    score: Callable[[PassCosts], float],
    choices: Mapping[str, tuple[str, ...]],
    may_go_on: Callable[[], bool],
    note: Callable[[Trial | Refused], None],
) -> Found:
    """Try the values of one property after the other, keeping the best.

    measure: raises `DeviceError` for settings that the device refuses. score: seconds; lower is
    better. may_go_on: False once the time is up. note: called with every trial.
    """
    default = best = Trial({}, measure({}))
    note(default)
    others: list[tuple[Properties, float]] = []
    for name, values in choices.items():
        base = best.properties
        for value in values:
            if not may_go_on():
                return confirm(Found(default, best, others), measure, score)
            properties = {**base, name: value}
            try:
                trial = Trial(properties, measure(properties))
            except DeviceError as error:
                note(Refused(properties, str(error)))
                continue
            note(trial)
            others.append((properties, score(trial.costs) / score(default.costs)))
            if score(trial.costs) < GAIN * score(best.costs):
                best = trial
    return confirm(Found(default, best, others), measure, score)


def confirm(
    found: Found,
    measure: Callable[[Properties], PassCosts],
    score: Callable[[PassCosts], float],
) -> Found:
    """Measure the best settings and the defaults once more, to drop chance results."""
    default = Trial(found.default.properties, measure(found.default.properties))
    if not found.best.properties:
        return Found(default, default, found.others)
    best = Trial(found.best.properties, measure(found.best.properties))
    won = score(best.costs) < GAIN * score(default.costs)
    return Found(default, best if won else default, found.others)
