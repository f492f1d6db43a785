"""Weighs the speed of a main model's settings against batch invariance."""

from collections.abc import Callable
from dataclasses import replace

from ov_specdec.loading.devices import PRECISION_PROPERTIES
from ov_specdec.loading.folder import ModelFolder
from ov_specdec.loading.invariance import SLOWER, check, look_up
from ov_specdec.loading.runtime_config import RuntimeConfig
from ov_specdec.tuning.passes import PassCosts
from ov_specdec.tuning.search import GAIN, Properties, Trial, describe_settings


def weigh(
    folder: ModelFolder,
    config: RuntimeConfig,
    fastest: Trial,
    measure: Callable[[Properties], PassCosts],
    speed: Callable[[PassCosts], float],
) -> tuple[Trial, str]:
    """The fastest settings, or invariant ones that are as fast within noise; and a line on why.

    config: of the model, without settings. measure: the cost of passes with settings. speed: from
    that cost; higher is better.
    """
    known = look_up(folder, config)
    if not known.is_on and not known.is_checked:
        return fastest, f"no: {known.reason}"

    def difference(properties: Properties) -> str:
        return check(folder, replace(config, properties=properties, batch_invariant=True))

    why = difference(fastest.properties)
    if not why:
        return fastest, "yes"
    for precision in SLOWER:
        settings = PRECISION_PROPERTIES[precision]
        if difference(settings):
            continue
        trial = Trial(settings, measure(settings))
        share = speed(trial.costs) / speed(fastest.costs)
        note = f"{describe_settings(settings)} is, with {share:.2f} times the speed"
        if share > GAIN:
            return trial, f"yes: {note} of the fastest settings, which are not"
        return fastest, f"no: {why}; {note}: --batch-invariant true"
    return fastest, f"no: {why}"
