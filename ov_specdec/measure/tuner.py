"""Measures and chooses the settings of a pair: one coordinate search for each model."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from time import perf_counter
from typing import Any

from ov_specdec.checks.invariance import SLOWER
from ov_specdec.errors import DeviceError, OptionError
from ov_specdec.measure.methods import interleave
from ov_specdec.measure.prompts import TUNING
from ov_specdec.models.devices import (
    PRECISION_PROPERTIES,
    computes_in,
    describe_machine,
    find_device,
    usable_cores,
)
from ov_specdec.models.folder import ModelFolder
from ov_specdec.models.profile import Profile, pair_fingerprint
from ov_specdec.models.runtime_config import RuntimeConfig
from ov_specdec.pipeline import SpeculativePipeline
from ov_specdec.planning.costs import NOMINAL, PassCurve, Role
from ov_specdec.planning.measurement import Measurement
from ov_specdec.results.stats import BatchInvariance

Properties = Mapping[str, str]

GAIN = 0.97
"""A value is kept if its score is below this fraction of the best so far, to ignore noise."""

REPETITIONS = 2
"""Measurements, after the search, of all settings that it kept."""

PRECISION_HINT = "INFERENCE_PRECISION_HINT"
CHOICES: Mapping[str, tuple[str, ...]] = {
    PRECISION_HINT: ("f32", "bf16", "f16"),
    "DYNAMIC_QUANTIZATION_GROUP_SIZE": ("0", "32", "128"),
    "KV_CACHE_PRECISION": ("u8", "f16", "f32"),
}
"""Values to try for each property, besides OpenVINO's default and numbers of threads."""

PASS_SECONDS, PASS_SWEEPS = 0.4, 3
"""Time for the passes of a trial, and the maximum measurements of each size in it."""

PASS_TOKENS: Mapping[Role, tuple[int, ...]] = {"draft": (1,), "main": (1, 5)}
"""Tokens of the passes that settings are compared by. Those of the main model decode plainly, and
verify four draft tokens."""

PARALLEL_TOKENS = (8,)
"""The same for a draft model that drafts all tokens in one pass."""

CHANGED, INVARIANT = "other_token_than_exact", "batch_invariant"
"""Entries of a profile's report: the fraction of tokens for which greedy decoding with the profile
chooses another token than in `exact`; and whether the main model's passes are batch-invariant."""

SHARES: Mapping[Role, float] = {"draft": 0.2, "main": 0.5}
"""Fractions of the time when the search of each model ends; the rest is for drafters."""


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


class Tuner:
    """Measures one pair on one device. Compiles a model again for each trial.

    seconds: for all measurements and for comparing drafters after them. note: called with what is
    measured.
    """

    def __init__(
        self, main: Path, draft: Path, device: str, seconds: float, note: Callable[[str], object]
    ) -> None:
        self._paths: dict[Role, Path] = {"main": main, "draft": draft}
        self._device = device
        self._note = note
        self._start, self._seconds = perf_counter(), seconds
        self._opened: tuple[Role, dict[str, Any], SpeculativePipeline] | None = None
        folder, of_draft = ModelFolder.read(main), ModelFolder.read(draft)
        self._pass_tokens = dict(PASS_TOKENS)
        if of_draft.mask_token is not None:
            self._pass_tokens["draft"] = PARALLEL_TOKENS
        if folder.is_encoder_decoder:
            raise OptionError(
                f"no profile is made for encoder-decoder models such as '{main}': leave out DRAFT, "
                f"and compare drafters with --other-draft {draft}"
            )
        self.pair = pair_fingerprint(folder, of_draft, device, RuntimeConfig.kv)
        """The models, device and versions that the profile applies to."""

    def run(self) -> tuple[Profile, Mapping[Role, Found]]:
        """Measure everything: the settings, and what was found for each model.

        Raises `DeviceError` if the device refuses even its defaults.
        """
        try:
            self._note("agreement with exact precision")
            exact = self._open("main", precision="exact")
            prompts = [exact.tokenizer.encode(text) for text in TUNING]
            options: dict[str, Any] = {"max_new_tokens": 16, "ignore_eos": True}
            outputs = [exact.generate(prompt, **options).token_ids for prompt in prompts]
            draft, main = self._search("draft"), self._search("main")
            best, invariance = self._prefer_invariant(main.best)
            changed = self._count_changes(best.properties, prompts, outputs)
        finally:
            self._close()
        report = {
            "machine": describe_machine(self._device),
            "models": {role: str(path) for role, path in self._paths.items()},
            CHANGED: changed,
            INVARIANT: invariance,
            "main_pass_seconds": best.passes.seconds,
            "draft_pass_seconds": draft.best.passes.seconds,
        }
        properties = dict(best.properties), dict(draft.best.properties)
        return Profile(self.pair, *properties, report), {"main": main, "draft": draft}

    def _open(self, role: Role, **settings: Any) -> SpeculativePipeline:
        """One model alone, which stays open until another is needed.

        The main model's passes have the form of later runs.
        """
        if self._opened is None or self._opened[:2] != (role, settings):
            self._close()
            pipeline = SpeculativePipeline(
                self._paths[role],
                drafter="none",
                device=self._device,
                profile="none",
                batch_invariant="auto" if role == "main" else False,
                **settings,
            )
            self._opened = role, settings, pipeline
        return self._opened[2]

    def _close(self) -> None:
        if self._opened is not None:
            self._opened[2].close()
            self._opened = None

    def _search(self, role: Role) -> Found:
        """Search one model's settings, while a trial and all repetitions fit into the time."""
        end, longest = self._start + SHARES[role] * self._seconds, 0.0

        def timed(properties: Properties) -> PassCurve:
            nonlocal longest
            start = perf_counter()
            passes = self._measure(role, properties)
            longest = max(longest, perf_counter() - start)
            return passes

        def has_time_for(number: int) -> bool:
            return perf_counter() + number * longest < end

        return search(
            timed, partial(score, self._pass_tokens[role]), offered(self._device), has_time_for
        )

    def _measure(self, role: Role, properties: Properties) -> PassCurve:
        self._note(f"{role} model: {describe_settings(properties)}")
        self._close()  # each measurement has a model of its own
        runner = self._open(role, properties=properties).main.runner
        measurement = Measurement(runner, None, PASS_SWEEPS)
        measurement.run(PASS_SECONDS)
        return measurement.curve(NOMINAL).main

    def _count_changes(
        self, properties: Properties, prompts: list[list[int]], outputs: list[list[int]]
    ) -> float:
        """The fraction of greedy choices of these settings that differ from those of `exact`."""
        chosen, changes = self._open("main", properties=properties), list[bool]()
        for prompt, output in zip(prompts, outputs, strict=True):
            result = chosen.generate([*prompt, *output], max_new_tokens=1, prompt_logprobs=1)
            scored = result.prompt_logprobs[len(prompt) :]
            changes += [one.top[0][0] != own for one, own in zip(scored, output, strict=True)]
        return fmean(changes)

    def _prefer_invariant(self, fastest: Trial) -> tuple[Trial, str]:
        """The fastest settings, or batch-invariant ones that are as fast within noise; and why."""
        status = self._check(fastest.properties)
        if status.is_verified:
            return fastest, "yes"
        for precision in SLOWER if status.is_checked else ():
            settings = PRECISION_PROPERTIES[precision]
            if not self._check(settings).is_verified:
                continue
            turns = repeat(partial(self._measure, "main"), [fastest.properties, settings])
            sizes = self._pass_tokens["main"]
            share = min(score(sizes, own) / score(sizes, other) for own, other in turns)
            note = f"{describe_settings(settings)} is, with {share:.2f} times the speed"
            if share > GAIN:
                trial = Trial(settings, turns[-1][1])
                return trial, f"yes: {note} of the fastest settings, which are not"
            return fastest, f"no: {status.reason}; {note}: --batch-invariant true"
        return fastest, f"no: {status.reason}"

    def _check(self, properties: Properties) -> BatchInvariance:
        """Whether passes with these settings are batch-invariant."""
        self._note(f"batch invariance with {describe_settings(properties)}")
        try:
            return self._open("main", properties=properties).check_batch_invariant()
        except DeviceError as error:
            return BatchInvariance(False, str(error), is_checked=True)


def score(sizes: Sequence[int], passes: PassCurve) -> float:
    """Seconds of the passes that a model's settings are compared by, of these sizes."""
    return sum(passes.at(size) for size in sizes)


def offered(device: str) -> dict[str, tuple[str, ...]]:
    """`CHOICES` and threads, without precisions that the device does not support.

    Off the CPU the KV cache has the inference precision, because 8 bits are not exact there. On it,
    a small model may be faster on half or a quarter of the cores.
    """
    found = find_device(device)
    precisions = [name for name in CHOICES[PRECISION_HINT] if computes_in(found, name)]
    choices = {**CHOICES, PRECISION_HINT: tuple(precisions)}
    if not found.is_cpu:
        del choices["KV_CACHE_PRECISION"]
        return choices
    cores = usable_cores()
    threads = sorted({cores // 2, cores // 4} - {0, cores}, reverse=True)
    return {**choices, "INFERENCE_NUM_THREADS": tuple(map(str, threads))}


def search(
    measure: Callable[[Properties], PassCurve],
    score: Callable[[PassCurve], float],
    choices: Mapping[str, tuple[str, ...]],
    has_time_for: Callable[[int], bool],
) -> Found:
    """Try the values of one property after the other, keeping the best; then repeat what was kept.

    measure: raises `DeviceError` for settings that the device refuses. score: in seconds.
    has_time_for: whether so many measurements fit into the time.
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
    best, gain = kept[0], 1.0
    if kept[1:]:
        turns = repeat(measure, [trial.properties for trial in kept])
        scores = [[score(passes) for passes in repeated] for repeated in zip(*turns, strict=True)]
        fastest = 0
        for index in range(1, len(kept)):
            if is_faster(scores[index], scores[fastest]):
                fastest = index
        best, gain = kept[fastest], fmean(scores[0]) / fmean(scores[fastest])
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
