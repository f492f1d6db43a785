"""Checks batch invariance: whether a token's logits are bitwise the same in any pass.

Which passes agree depends on processor, threads, properties and model: see docs/exactness.md.
`configure` finds a configuration with which they do. Source of the term: He et al., "Defeating
Nondeterminism in LLM Inference" (Thinking Machines, 2025).
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import numpy as np
from pydantic import Field

from ov_specdec.errors import DeviceError, Option, OptionError, SessionError, openvino_message
from ov_specdec.files import keep_section, read_section, record_file
from ov_specdec.models.budgets import limit_memory
from ov_specdec.models.compile import LoadedModel, fingerprint, load_model
from ov_specdec.models.devices import Precision, RuntimeConfig
from ov_specdec.models.exported import open_exported
from ov_specdec.models.folder import ModelFolder
from ov_specdec.results.stats import BatchInvariance
from ov_specdec.runner.base import Runner
from ov_specdec.runner.probe import Probe, ProbeSpan

WantedInvariance = bool | Literal["auto"]

SLOWER: tuple[Precision, ...] = ("f32", "exact")
"""Precisions that True tries if the default one does not pass: the faster one first."""

SMALL_PASS = 64
"""Passes up to this number of tokens have to agree, and until the verdict none is larger. AVX2 sums
products of 90 or more rows in a different order than fewer."""

LARGE_PASS = 512
"""Tokens of a large prefill pass."""

PROMPTS = {SMALL_PASS: SMALL_PASS, 171: None, LARGE_PASS: None}
"""Sizes of prefill chunks, and the maximum tokens of their passes. 171 is no multiple of a tile of
a matrix product. On AVX2 it differs already, which spares the long passes."""

POSITION = 190
"""The compared position: two before the end of a block of 16 or 32 tokens."""

COMPARED_SIZES, MORE_SIZES = (2, 1, 3, 9, 17, 33, SMALL_PASS), (4, 6, 8, 12, 16, 32)
"""Sizes of compared verification passes. Static shapes are compared before their use."""

CHECKED = "checked on this machine"
NOT_CHECKED = "not checked yet on this machine with these settings"


@dataclass(frozen=True)
class InvarianceVerdict:
    """The result of a check: the first pass whose logits differed; "" if none did.

    max_pass_tokens: maximum tokens of passes that agree; None: any number.
    """

    difference: str
    max_pass_tokens: Annotated[int, Field(ge=SMALL_PASS, le=SMALL_PASS)] | None


class ComparedPass(NamedTuple):
    """A pass of a check, whose name a verdict shows. The rows of its first span are compared."""

    name: str
    spans: tuple[ProbeSpan, ...]


class Invariance:
    """The batch invariance of a main model: whether its passes agree, and how that is known.

    Its check computes the same tokens in 46 different passes. All rows of a position of the text
    have to equal the first, by their digests.

    Until there is a verdict, passes have the form that every verdict without a difference allows,
    so a verdict changes no text. path: of its record; None: no file. off: the status if the
    runner's passes have another form.
    """

    def __init__(
        self, runner: Runner, path: Path | None, off: BatchInvariance | None = None
    ) -> None:
        self._path = path
        self._runner = runner if runner.is_invariant else None
        self.status = off or status_of(None)
        # Passes that are left of the check, each list with the maximum tokens of its passes.
        self._left: list[tuple[int | None, list[ComparedPass]]] = []
        self._digests: dict[tuple[int, int, bool], bytes] = {}
        if self._runner is None:
            return
        if (verdict := read_verdict(path)) is not None:
            self._conclude(runner, verdict)
            return
        longest = min(runner.original_context or runner.max_length, LARGE_PASS + 2)
        position = min(POSITION, longest // 3)
        self._left = [
            (SMALL_PASS, [*_after(position, longest)]),
            (SMALL_PASS, [*_prompt(48, position + 2), *_sizes(MORE_SIZES, position, longest)]),
            *((most, [*_prompt(size, longest)]) for size, most in PROMPTS.items()),
        ]
        runner.max_pass_tokens = SMALL_PASS

    @property
    def is_pending(self) -> bool:
        """Whether a check is to be run, or finished."""
        return self._runner is not None

    def close(self) -> None:
        """Release the runner; the status stays."""
        self._runner = None

    def passes(self) -> Generator[float, None, None]:
        """Run what is left of the check, one pass at each `next`; yields the fraction done.

        The models must not be in use. Closed before its end, another one continues.
        """
        runner = self._runner
        if runner is None:
            return
        try:
            verdict = yield from self._compare(runner)
        except (SessionError, RuntimeError) as error:  # no room in memory, or OpenVINO's
            self.status = BatchInvariance(True, f"not checked: {openvino_message(error)}")
            self._runner = None
        else:
            keep_section(self._path, "invariance", verdict)
            self._conclude(runner, verdict)

    def verify(self, progress: Callable[[float], None] | None = None) -> BatchInvariance:
        """Run all of `passes`. progress: called with the fraction done, 0 to 1."""
        for done in self.passes():
            if progress is not None:
                progress(done)
        return self.status

    def _conclude(self, runner: Runner, verdict: InvarianceVerdict) -> None:
        """Set the form of passes by the result."""
        self._runner, self.status = None, status_of(verdict)
        runner.is_invariant = self.status.is_on
        runner.separates_generated &= self.status.is_on
        runner.is_verified = self.status.is_verified
        runner.max_pass_tokens = verdict.max_pass_tokens

    def _compare(self, runner: Runner) -> Generator[float, None, InvarianceVerdict]:
        total = len(self._left)
        probe = Probe(runner)
        try:
            while self._left:
                runner.max_pass_tokens, passes = self._left[0]
                for each in passes:
                    differs = self._differs(each, probe)
                    yield 1 - len(self._left) / total
                    if differs and runner.max_pass_tokens is not None:
                        return InvarianceVerdict(each.name, None)
                    if differs:
                        return InvarianceVerdict("", SMALL_PASS)
                probe.close()
                del self._left[0]
        finally:
            probe.close()
            runner.max_pass_tokens = SMALL_PASS
        return InvarianceVerdict("", None)

    def _differs(self, compared: ComparedPass, probe: Probe) -> bool:
        """Run a pass; whether a row differs from an earlier one of its position."""
        rows, span = probe.forward(*compared.spans), compared.spans[0]
        found = False
        for position, row in enumerate(rows, span.end - span.num_rows):
            digest = blake2b(np.ascontiguousarray(row).data, digest_size=16).digest()
            key = position, span.shift, span.is_generated
            found |= self._digests.setdefault(key, digest) != digest
        return found


def status_of(verdict: InvarianceVerdict | None) -> BatchInvariance:
    """The status of a verdict; None: not checked yet."""
    if verdict is None:
        return BatchInvariance(True, NOT_CHECKED)
    if not verdict.difference:
        return BatchInvariance(True, CHECKED, is_checked=True)
    reason = f"{verdict.difference} gave different logits on this machine: try batch_invariant=True"
    return BatchInvariance(False, reason, is_checked=True)


def configure(
    wanted: WantedInvariance,
    folder: ModelFolder,
    config: RuntimeConfig,
    others: Sequence[Precision],
) -> tuple[RuntimeConfig, BatchInvariance | None]:
    """The configuration with which passes of a main model are invariant; or why there is none.

    others: precisions that may replace the configured one for batch_invariant=True. They are loaded
    and checked unless the result is known. Raises `OptionError` if that is impossible with these
    settings, and `DeviceError` if no precision passes.
    """
    if wanted is False:
        return config, BatchInvariance(False, "batch_invariant=False")
    if reason := _obstacle(folder, config):
        if wanted is True:
            problem = f"{{batch_invariant}} is not possible with {reason}"
            raise OptionError(f"{problem}: use 'auto'", batch_invariant=True)
        return config, BatchInvariance(False, reason)
    on = replace(config, batch_invariant=True)
    if wanted is True:
        return _first_that_passes(folder, on, others), None
    known = status_of(read_verdict(verdict_file(folder, on)))
    return (on, None) if known.is_on else (config, known)


def look_up(folder: ModelFolder, config: RuntimeConfig) -> BatchInvariance:
    """The result of "auto" for a model that is not loaded."""
    config, off = configure("auto", folder, config, ())
    return off or status_of(read_verdict(verdict_file(folder, config)))


def open_invariance(loaded: LoadedModel, off: BatchInvariance | None = None) -> Invariance:
    """The invariance of a loaded main model. off: why it was not compiled for it."""
    if off is None and loaded.kv == "stateful":
        off = BatchInvariance(False, f"a stateful KV cache ({loaded.reason})")
    return Invariance(loaded.runner, verdict_file(loaded.folder, loaded.config), off)


def verdict_file(folder: ModelFolder, config: RuntimeConfig) -> Path | None:
    """The cached verdict on a configuration; None for a user without a cache folder."""
    return record_file(fingerprint(folder, config, "paged"))


def _obstacle(folder: ModelFolder, config: RuntimeConfig) -> str:
    """The obstacle to invariant passes; "" if a check decides."""
    if folder.is_encoder_decoder:
        return "an encoder-decoder model"
    if not config.target.is_cpu:
        return f"device {config.target.name}"
    mode = config.openvino_properties().get("KEY_CACHE_QUANT_MODE")
    if config.kv == "stateful":
        return "a stateful KV cache"
    return "" if mode == "BY_TOKEN" else f"KEY_CACHE_QUANT_MODE={mode}"


def _first_that_passes(
    folder: ModelFolder, config: RuntimeConfig, others: Sequence[Precision]
) -> RuntimeConfig:
    differences = []
    slower = [replace(config, precision=other, properties=None) for other in others]
    for candidate in (config, *slower):
        verdict = read_verdict(verdict_file(folder, candidate))
        difference = find_difference(folder, candidate) if verdict is None else verdict.difference
        if not difference:
            return candidate
        differences.append(f"{candidate.precision}: {difference}")
    where = f"{folder.path} on this machine, where logits differ ({'; '.join(differences)})"
    problem = f"{{batch_invariant}} is not possible for {where}"
    auto = Option("batch_invariant", "auto")
    raise DeviceError(problem + ": use {auto}", batch_invariant=True, auto=auto)


def find_difference(folder: ModelFolder, config: RuntimeConfig) -> str:
    """The first difference with this configuration; "" if there is none. Caches the verdict."""
    exported = open_exported(folder.path)
    try:
        loaded = load_model(exported, config)
        limit_memory([loaded], None, 4)  # a check has five sequences, four of them short
        status = open_invariance(loaded).verify()
    except DeviceError as error:
        return str(error)
    return "" if status.is_verified else status.reason


def _after(position: int, longest: int) -> Iterator[ComparedPass]:
    """Passes after the same prompt: of several sizes, after a rejection, and beside sequences."""
    yield from _chunks(SMALL_PASS, position)
    yield from _sizes(COMPARED_SIZES, position, longest)
    own = ProbeSpan(position, longest, is_generated=True)
    for begin in range(position, position + 3):
        yield ComparedPass("tokens one after another", (own.part(begin, begin + 1),))

    rejected = own.part(position, min(position + 20, longest))
    yield ComparedPass("rejected tokens", (rejected._replace(shift=7),))
    name = "a pass after 20 rejected tokens"
    yield ComparedPass(name, (own.part(position, position + 2),))

    lengths = [1 + position // part for part in (20, 10, 5)]
    others = [ProbeSpan(0, end, 1, index, shift=5) for index, end in enumerate(lengths, 1)]
    yield ComparedPass("other sequences", tuple(others))
    for size, each, is_generated in ((1, 1, True), (2, 1, True), (1, 5, True), (2, 5, False)):
        does = "generate" if is_generated else "read"
        name = f"a pass over {size} tokens beside {len(others)} sequences that {does} {each}"
        beside = [
            span._replace(begin=span.end, end=span.end + each, is_generated=is_generated)
            for span in others
        ]
        yield ComparedPass(name, (own.part(position, position + size), *beside))


def _sizes(sizes: Iterable[int], position: int, longest: int) -> Iterator[ComparedPass]:
    """Passes of these sizes over the tokens from a position on, as draft tokens are verified."""
    own = ProbeSpan(position, longest, is_generated=True)
    for size in sizes:
        if position + size <= longest:
            yield ComparedPass(f"a pass over {size} tokens", (own.part(position, position + size),))


def _prompt(size: int, end: int) -> Iterator[ComparedPass]:
    """Prefill the text in chunks of a size, and compare the last two tokens."""
    yield from _chunks(size, end - 2)
    yield ComparedPass(f"a prompt in passes over {size} tokens", (ProbeSpan(end - 2, end, 2),))


def _chunks(size: int, end: int) -> Iterator[ComparedPass]:
    """Prefill the text in chunks, none of a single token, and compare the last row of each."""
    name = f"a prompt in passes over {size} tokens"
    begins = [*range(0, end - 1, size), end]
    for begin, after in pairwise(begins):
        yield ComparedPass(name, (ProbeSpan(begin, after),))


def read_verdict(path: Path | None) -> InvarianceVerdict | None:
    """The verdict in a file; None if there is no valid one."""
    return read_section(path, "invariance", InvarianceVerdict)
