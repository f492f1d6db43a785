"""Measures and chooses the settings of a pair: one search for each model."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

from ov_specdec.errors import DeviceError, OptionError
from ov_specdec.measure.prompts import TUNING
from ov_specdec.measure.search import (
    GAIN,
    Found,
    Properties,
    Trial,
    describe_settings,
    repeat,
    search,
)
from ov_specdec.models.devices import (
    PRECISION_PROPERTIES,
    computes_in,
    describe_machine,
    find_device,
    openvino_core,
    usable_cores,
)
from ov_specdec.models.folder import ModelFolder
from ov_specdec.models.invariance import SLOWER
from ov_specdec.models.profile import Profile, pair_fingerprint
from ov_specdec.models.runtime_config import RuntimeConfig
from ov_specdec.pipeline import SpeculativePipeline
from ov_specdec.planning.costs import NOMINAL, PassCurve, Role
from ov_specdec.planning.measurement import Measurement
from ov_specdec.results.stats import BatchInvariance

PRECISION_HINT = "INFERENCE_PRECISION_HINT"
CHOICES: Mapping[str, tuple[str, ...]] = {
    PRECISION_HINT: ("f32", "bf16", "f16"),
    "DYNAMIC_QUANTIZATION_GROUP_SIZE": ("0", "32", "128"),
    "KV_CACHE_PRECISION": ("u8", "f16", "f32"),
}
"""Values to try for each property, besides OpenVINO's default and numbers of threads."""

PASS_SECONDS, PASS_SWEEPS = 0.4, 3
"""Time for the passes of a trial, and the maximum measurements of each size in it."""

SIZES: Mapping[Role, tuple[int, ...]] = {"draft": (1,), "main": (1, 5)}
"""Tokens of the passes that settings are compared by. Those of the main model decode plainly, and
verify four draft tokens."""

EXACT: dict[str, Any] = {"max_new_tokens": 16, "ignore_eos": True}
"""Options of the texts in `exact` precision."""

SHARES: Mapping[Role, float] = {"draft": 0.2, "main": 0.5}
"""Fractions of the time when the search of each model ends; the rest is for drafters."""


@dataclass(frozen=True)
class Tuning:
    """The measured and chosen settings.

    found: of each model. changed: fraction of tokens for which greedy decoding with the profile
    chooses another token than in `exact`. invariance: whether the main model's passes are
    batch-invariant.
    """

    profile: Profile
    found: Mapping[Role, Found]
    changed: float
    invariance: str


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
        folder = ModelFolder.read(main)
        if folder.is_encoder_decoder:
            raise OptionError(
                f"no profile is made for encoder-decoder models such as '{main}': leave out DRAFT, "
                f"and compare drafters with --other-draft {draft}"
            )
        self.pair = pair_fingerprint(folder, ModelFolder.read(draft), device, RuntimeConfig.kv)
        """The models, device and versions that the profile applies to."""

    def run(self) -> Tuning:
        """Measure everything. `DeviceError` if the device refuses even its defaults."""
        try:
            texts = self._write_exactly()
            draft, main = self._search("draft"), self._search("main")
            best, invariance = self._prefer_invariant(main.best)
            changed = self._count_changes(best.properties, texts)
        finally:
            self._close()
        report = {
            "machine": describe_machine(self._device),
            "models": {role: str(path) for role, path in self._paths.items()},
            "other_token_than_exact": changed,
            "batch_invariant": invariance,
            "main_pass_seconds": best.passes.seconds,
            "draft_pass_seconds": draft.best.passes.seconds,
        }
        properties = dict(best.properties), dict(draft.best.properties)
        profile = Profile(self.pair, *properties, report)
        return Tuning(profile, {"main": main, "draft": draft}, changed, invariance)

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

        return search(timed, partial(score, role), offered(self._device), has_time_for)

    def _measure(self, role: Role, properties: Properties) -> PassCurve:
        self._note(f"{role} model: {describe_settings(properties)}")
        self._close()  # each measurement has a model of its own
        runner = self._open(role, properties=properties).main.runner
        measurement = Measurement(runner, None, PASS_SWEEPS)
        measurement.run(PASS_SECONDS)
        return measurement.curve(NOMINAL).main

    def _write_exactly(self) -> list[tuple[list[int], list[int]]]:
        """Prompts with their greedy outputs in `exact` precision, as ids."""
        self._note("agreement with exact precision")
        exact = self._open("main", precision="exact")
        prompts = [exact.tokenizer.encode(text) for text in TUNING]
        return [(prompt, exact.generate(prompt, **EXACT).token_ids) for prompt in prompts]

    def _count_changes(
        self, properties: Properties, texts: list[tuple[list[int], list[int]]]
    ) -> float:
        """The fraction of greedy choices of these settings that differ from those of `exact`."""
        chosen, other, total = self._open("main", properties=properties), 0, 0
        for prompt, output in texts:
            text = [*prompt, *output]
            result = chosen.generate(text, max_new_tokens=1, prompt_logprobs=1)
            choices = [token.top[0][0] for token in result.prompt_logprobs[len(prompt) :]]
            other += sum(a != b for a, b in zip(choices, output, strict=True))
            total += len(output)
        return other / total

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
            share = min(score("main", own) / score("main", other) for own, other in turns)
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


def score(role: Role, passes: PassCurve) -> float:
    """Seconds of the passes that a model's settings are compared by."""
    return sum(passes.at(size) for size in SIZES[role])


def offered(device: str) -> dict[str, tuple[str, ...]]:
    """`CHOICES` and threads, without precisions that the device does not support.

    Off the CPU the KV cache has the inference precision, because 8 bits are not exact there. On it,
    a small model may be faster on half or a quarter of the cores.
    """
    found = find_device(openvino_core(), device)
    precisions = [name for name in CHOICES[PRECISION_HINT] if computes_in(found, name)]
    choices = {**CHOICES, PRECISION_HINT: tuple(precisions)}
    if not found.is_cpu:
        del choices["KV_CACHE_PRECISION"]
        return choices
    cores = usable_cores()
    threads = sorted({cores // 2, cores // 4} - {0, cores}, reverse=True)
    return {**choices, "INFERENCE_NUM_THREADS": tuple(map(str, threads))}
