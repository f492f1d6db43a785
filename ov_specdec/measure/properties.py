"""Measures and chooses the settings of a pair: one coordinate search for each model."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from time import perf_counter
from typing import Any

from ov_specdec.errors import DeviceError, OptionError
from ov_specdec.measure.methods import interleave, open_measured
from ov_specdec.measure.prompts import TUNING
from ov_specdec.models.devices import RuntimeConfig, describe_machine, find_device, usable_cores
from ov_specdec.models.folder import ModelFolder
from ov_specdec.models.profile import Profile, pair_fingerprint
from ov_specdec.pipeline import SpeculativePipeline
from ov_specdec.planning.costs import Role
from ov_specdec.planning.kept_costs import KeptCosts

Properties = Mapping[str, str]

GAIN = 0.97
"""A value is kept if its score is below this fraction of the best so far, to ignore noise."""

REPETITIONS = 2
"""Measurements, after the search, of the best settings and of the defaults."""

PRECISION_HINT = "INFERENCE_PRECISION_HINT"
CHOICES: Mapping[str, tuple[str, ...]] = {
    PRECISION_HINT: ("f32", "bf16", "f16"),
    "DYNAMIC_QUANTIZATION_GROUP_SIZE": ("0", "32", "128"),
}
"""Values to try for each property, besides OpenVINO's default and numbers of threads. A KV cache of
another precision shows its price in memory and over long texts, which are not measured here."""

PASS_SECONDS = 0.4
"""Time for the passes of a trial."""

PRICED = (1, 2, 4, 8, 16)
"""Sizes of the main model's passes whose price is reported."""

PASS_TOKENS: Mapping[Role, tuple[int, ...]] = {"draft": (1,), "main": (1, 5)}
"""Tokens of the passes that settings are compared by. Those of the main model decode plainly, and
verify four draft tokens."""

CHANGED, INVARIANT, PRICES = "other_token_than_exact", "batch_invariant", "pass_ms"
"""Entries of a profile's report: the fraction of tokens for which greedy decoding with the profile
chooses another token than in `exact`; and whether the main model's passes are batch-invariant."""

SHARES: Mapping[Role, float] = {"draft": 0.2, "main": 0.5}
"""Fractions of the time when the search of each model ends; the rest is for drafters."""


def describe_settings(properties: Properties) -> str:
    """Properties in one line."""
    return " ".join(f"{key}={value}" for key, value in properties.items()) or "defaults"


@dataclass(frozen=True)
class Found:
    """The best settings, OpenVINO's defaults if no others are faster beyond noise, and why.

    trials: all settings that the search measured, in order, with the seconds of their passes.
    """

    best: Properties
    reason: str
    trials: Sequence[tuple[Properties, float]] = ()


class Tuner:
    """Measures one pair on one device. Compiles a model again for each trial.

    seconds: for these measurements and those of drafters. note: called with what is measured.
    """

    def __init__(
        self, main: Path, draft: Path, device: str, seconds: float, note: Callable[[str], object]
    ) -> None:
        self._paths: dict[Role, Path] = {"main": main, "draft": draft}
        self._device = device
        self._note = note
        self._start, self._seconds = perf_counter(), seconds
        folder = ModelFolder.read(main)
        if folder.is_encoder_decoder:
            problem = f"no profile is made for encoder-decoder models such as '{main}'"
            remedy = f"leave out DRAFT, and compare drafters with --other-draft {draft}"
            raise OptionError(f"{problem}: {remedy}")
        self.pair = pair_fingerprint(folder, ModelFolder.read(draft), device, RuntimeConfig.kv)
        """The models, device and versions that the profile applies to."""

    def run(self) -> tuple[Profile, Mapping[Role, Found]]:
        """The settings, and what was found for each; `DeviceError` if even defaults are refused."""
        found: dict[Role, Found] = {}
        for role in ("draft", "main"):
            end = self._start + SHARES[role] * self._seconds
            found[role] = search(partial(self._time, role), choices_on(self._device), end)
        main, draft = found["main"].best, found["draft"].best
        changed, invariance, prices = self._compare_with_exact(main)
        report = {
            "machine": describe_machine(self._device),
            "models": {role: str(path) for role, path in self._paths.items()},
            CHANGED: changed,
            INVARIANT: invariance,
            PRICES: prices,
        }
        return Profile(self.pair, dict(main), dict(draft), report), found

    def _open(self, role: Role, **settings: Any) -> SpeculativePipeline:
        """One model alone. The main model's passes have the form of later runs."""
        settings["batch_invariant"] = "auto" if role == "main" else False
        return open_measured(self._paths[role], drafter="none", device=self._device, **settings)

    def _time(self, role: Role, properties: Properties) -> float:
        """Seconds of the passes that settings of this model are compared by."""
        self._note(f"{role} model: {describe_settings(properties)}")
        with self._open(role, properties=properties) as pipeline:
            costs = KeptCosts(pipeline.main.runner, None, None)
            costs.prepare(seconds=PASS_SECONDS)
        passes = costs.curve.main
        return sum(passes.at(size) for size in PASS_TOKENS[role])

    def _compare_with_exact(self, properties: Properties) -> tuple[float, str, Mapping[str, float]]:
        """Changed greedy choices against `exact`, batch invariance, and milliseconds of passes."""
        self._note("agreement with exact precision")
        options: dict[str, Any] = {"max_new_tokens": 16, "ignore_eos": True}
        with self._open("main", precision="exact") as exact:
            prompts = [exact.tokenizer.encode(text) for text in TUNING]
            outputs = [exact.generate(prompt, **options).token_ids for prompt in prompts]
        changes = list[bool]()
        with self._open("main", properties=properties) as chosen:
            status = chosen.check_batch_invariant()
            for prompt, output in zip(prompts, outputs, strict=True):
                result = chosen.generate([*prompt, *output], max_new_tokens=1, prompt_logprobs=1)
                scored = result.prompt_logprobs[len(prompt) :]
                changes += [one.top[0][0] != own for one, own in zip(scored, output, strict=True)]
            main = chosen.measure_costs(seconds=PASS_SECONDS).main
        prices = {f"{size} tokens": 1e3 * main.at(size) for size in PRICED}
        prices["1,000 cached"] = 1e6 * main.per_read
        return fmean(changes), "yes" if status.is_verified else f"no: {status.reason}", prices


def choices_on(device: str) -> dict[str, tuple[str, ...]]:
    """Threads and `CHOICES`, without precisions that the device does not support.

    On a CPU, a small model may be faster on half or a quarter of the cores.
    """
    found = find_device(device)
    precisions = [name for name in CHOICES[PRECISION_HINT] if found.computes_in(name)]
    choices = {**CHOICES, PRECISION_HINT: tuple(precisions)}
    if not found.is_cpu:
        return choices
    cores = usable_cores()
    threads = sorted({cores // 2, cores // 4} - {0, cores}, reverse=True)
    return {"INFERENCE_NUM_THREADS": tuple(map(str, threads)), **choices}


def search(
    measure: Callable[[Properties], float], choices: Mapping[str, tuple[str, ...]], end: float
) -> Found:
    """Try the values of one property after the other, keeping the best; then repeat that.

    measure: gives seconds, and raises `DeviceError` for settings that the device refuses, which are
    passed over. end: when all measurements end, by `perf_counter`.
    """
    best: Properties = {}
    start, defaults = perf_counter(), measure(best)
    fastest, trials = defaults, [(best, defaults)]
    for name, value in [(name, value) for name, values in choices.items() for value in values]:
        now = perf_counter()
        if now + (now - start) / len(trials) * (1 + 2 * REPETITIONS) > end:
            break
        properties = {**best, name: value}
        try:
            seconds = measure(properties)
        except DeviceError:
            continue
        trials.append((properties, seconds))
        if seconds < GAIN * fastest:
            best, fastest = properties, seconds
    if not trials[1:]:
        return Found({}, "no other settings were tried", trials)
    if best:
        methods = {"defaults": lambda _: measure({}), "best": lambda _: measure(best)}
        turns = list(interleave(methods, range(REPETITIONS)))
        usual, own = ([turn[name] for turn in turns] for name in methods)
        if is_faster(own, usual):
            gain = fmean(usual) / fmean(own)
            reason = f"{gain:.2f} times as fast as the defaults in {REPETITIONS} repetitions"
            return Found(best, reason, trials)
    other, seconds = min(trials[1:], key=lambda trial: trial[1])
    reason = (
        f"the best of {len(trials) - 1} other settings, {describe_settings(other)}, was "
        f"{defaults / seconds:.2f} times as fast in the search, but not faster beyond noise in "
        f"{REPETITIONS} repetitions"
    )
    return Found({}, reason, trials)


def is_faster(scores: Sequence[float], others: Sequence[float]) -> bool:
    """Whether the mean advantage over others exceeds `GAIN`, and the scatter of both together.

    Of simulated searches of eleven values without an effect, with a scatter of 10 % and outliers,
    6 % end with some of them; 11 % do if the advantage needs to exceed the larger scatter only.
    """
    scatter = max(scores) - min(scores) + max(others) - min(others)
    least = max(scatter, (1.0 - GAIN) * fmean(others))
    return fmean(others) - fmean(scores) > least
