"""Coordinate search for the fastest properties of a model, each value against the best so far."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean

from ov_specdec.errors import DeviceError
from ov_specdec.measure.methods import interleave
from ov_specdec.planning.costs import PassCurve

Properties = Mapping[str, str]
Score = Callable[[PassCurve], float]
"""Seconds; lower is better."""

GAIN = 0.97
"""A value is kept if its score is below this fraction of the best so far, to ignore noise."""

REPETITIONS = 2
"""Measurements, after the search, of all settings that it kept."""


def describe_settings(properties: Properties) -> str:
    """Properties in one line."""
    return " ".join(f"{key}={value}" for key, value in properties.items()) or "defaults"


@dataclass(frozen=True)
class Trial:
    """Settings, with the cost of passes."""

    properties: Properties
    passes: PassCurve


@dataclass(frozen=True)
class Found:
    """The best settings, OpenVINO's defaults if no others are faster beyond noise, and why.

    trials: all that the search measured. refused: the device's reason, by settings.
    """

    best: Trial
    reason: str
    trials: Sequence[Trial] = ()
    refused: Mapping[str, str] | None = None


def search(
    measure: Callable[[Properties], PassCurve],
    score: Score,
    choices: Mapping[str, tuple[str, ...]],
    has_time_for: Callable[[int], bool],
) -> Found:
    """Try the values of one property after the other, keeping the best; then repeat what was kept.

    measure: raises `DeviceError` for settings that the device refuses. has_time_for: whether so
    many measurements fit into the time.
    """
    trials = [Trial({}, measure({}))]
    kept, refused = trials[:], dict[str, str]()
    for name, value in [(name, value) for name, values in choices.items() for value in values]:
        if not has_time_for(1 + REPETITIONS * (len(kept) + 1)):
            break
        properties = {**kept[-1].properties, name: value}
        try:
            trial = Trial(properties, measure(properties))
        except DeviceError as error:
            refused[describe_settings(properties)] = str(error)
            continue
        trials.append(trial)
        if score(trial.passes) < GAIN * score(kept[-1].passes):
            kept.append(trial)
    best, gain = _confirm(kept, measure, score)
    if best.properties:
        reason = f"{gain:.2f} times as fast as the defaults in {REPETITIONS} repetitions"
    elif not trials[1:]:
        reason = "no other settings were tried"
    else:
        other = min(trials[1:], key=lambda trial: score(trial.passes))
        reason = (
            f"the best of {len(trials) - 1} other settings, {describe_settings(other.properties)}, "
            f"was {score(trials[0].passes) / score(other.passes):.2f} times as fast in the search, "
            f"but not faster beyond noise in {REPETITIONS} repetitions"
        )
    return Found(best, reason, trials, refused)


def _confirm(
    kept: Sequence[Trial], measure: Callable[[Properties], PassCurve], score: Score
) -> tuple[Trial, float]:
    """Repeat what the search kept: what is faster beyond noise than all before it, and how much."""
    if len(kept) == 1:
        return kept[0], 1.0
    turns = repeat(measure, [trial.properties for trial in kept])
    scores = [[score(passes) for passes in repeated] for repeated in zip(*turns, strict=True)]
    best = 0
    for index in range(1, len(kept)):
        if is_faster(scores[index], scores[best]):
            best = index
    return kept[best], fmean(scores[0]) / fmean(scores[best])


def repeat(
    measure: Callable[[Properties], PassCurve], settings: Sequence[Properties]
) -> list[list[PassCurve]]:
    """Measure settings again, interleaved: the costs of each repetition, in their order."""
    methods = {describe_settings(own): partial(measure, own) for own in settings}
    again = {name: lambda _, run=run: run() for name, run in methods.items()}
    return [list(turn.values()) for turn in interleave(again, range(REPETITIONS))]


def is_faster(scores: Sequence[float], others: Sequence[float]) -> bool:
    """Whether the mean advantage over others exceeds `GAIN`, and the scatter of both together.

    Of simulated searches of eleven values without an effect, with a scatter of 10 % and outliers,
    6 % end with some of them; 11 % do if the advantage needs to exceed the larger scatter only.
    """
    scatter = max(scores) - min(scores) + max(others) - min(others)
    least = max(scatter, (1.0 - GAIN) * fmean(others))
    return fmean(others) - fmean(scores) > least
