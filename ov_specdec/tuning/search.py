"""The search for the best properties: one after the other, each against the best so far."""

from collections.abc import Callable, Mapping
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
"""Values that are tried of each property, beside OpenVINO's default. Threads come on top."""

GAIN = 0.97
"""A value is taken if it brings the score below this part of the best so far: not for noise."""


@dataclass(frozen=True)
class Trial:
    """Settings, and what passes cost with them."""

    properties: Properties
    costs: PassCosts


@dataclass(frozen=True)
class Refused:
    """Settings that the device does not take."""

    properties: Properties
    why: str


@dataclass(frozen=True)
class Found:
    """OpenVINO's defaults, and the best settings that were found."""

    default: Trial
    best: Trial


def search(
    measure: Callable[[Properties], PassCosts],
    score: Callable[[PassCosts], float],
    choices: Mapping[str, tuple[str, ...]],
    may_go_on: Callable[[], bool],
    note: Callable[[Trial | Refused], None],
) -> Found:
    """Try the values of one property after the other, keeping the best.

    measure: raises `DeviceError` for settings that the device refuses. score: seconds; less is
    better. may_go_on: false once the time is up. note: told of every trial.
    """
    default = best = Trial({}, measure({}))
    note(default)
    for name, values in choices.items():
        base = best.properties
        for value in values:
            if not may_go_on():
                return confirm(Found(default, best), measure, score)
            properties = {**base, name: value}
            try:
                trial = Trial(properties, measure(properties))
            except DeviceError as error:
                note(Refused(properties, str(error)))
                continue
            note(trial)
            if score(trial.costs) < GAIN * score(best.costs):
                best = trial
    return confirm(Found(default, best), measure, score)


def confirm(
    found: Found,
    measure: Callable[[Properties], PassCosts],
    score: Callable[[PassCosts], float],
) -> Found:
    """Measure the best settings and the defaults once more: whoever wins by chance loses here."""
    default = Trial(found.default.properties, measure(found.default.properties))
    if not found.best.properties:
        return Found(default, default)
    best = Trial(found.best.properties, measure(found.best.properties))
    return Found(default, best if score(best.costs) < GAIN * score(default.costs) else default)
