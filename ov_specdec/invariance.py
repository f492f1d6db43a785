"""Checks batch invariance: whether a token's logits are bitwise the same in any pass.

Which passes agree depends on processor, threads, properties and model: see docs/exactness.md.
Source of the term: He et al., "Defeating Nondeterminism in LLM Inference" (Thinking Machines,
2025).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, Protocol, TypeGuard

import numpy as np

from ov_specdec.errors import CacheFullError
from ov_specdec.files import read_kept, write_kept
from ov_specdec.logits import Logits
from ov_specdec.runner.base import Runner, Slot, Span
from ov_specdec.stats import BatchInvariance

VERSION = 1

SMALL_PASS = 64
"""Passes up to this number of tokens have to agree. AVX2 sums products of 90 or more rows in a
different order than fewer; passes split to this size agree there too."""

LARGE_PASS = 512
"""Tokens of a large prefill pass."""

ODD_PASS = 333
"""Tokens of a prefill chunk that is no multiple of a tile of a matrix product."""

PLACE = 190
"""The compared position: two before the end of a block of 16 or 32 tokens."""

SIZES = (2, 1, 3, 9, 17, 33, SMALL_PASS)
"""Sizes of compared verification passes, besides the timed ones. Static shapes are compared before
their use."""

NUM_IDS = 47
"""Number of ids in the text, below any vocabulary's size."""

CHECKED = "checked on this machine"
NOT_CHECKED = "not checked yet on this machine with these settings"

Progress = Callable[[float], None]


class InvariantRunner(Runner, Protocol):
    """A runner whose passes may have a batch-invariant form.

    is_proven: whether a check passed. max_pass_tokens: maximum tokens of a pass; larger ones are
    split. None: any number.
    """

    is_invariant: bool
    is_proven: bool
    max_pass_tokens: int | None

    def clear_prefix_cache(self) -> None:
        """Clear the prefix cache."""
        ...


@dataclass(frozen=True)
class Verdict:
    """The result of a check.

    difference: the first pass whose logits differed; "" if none did. max_pass_tokens: maximum
    tokens of passes that agree; None: any number.
    """

    difference: str = ""
    max_pass_tokens: int | None = None

    @property
    def passed(self) -> bool:
        """Whether passes up to `SMALL_PASS` tokens agree."""
        return not self.difference


class ComparedRows:
    """Digests of rows of logits of one text, by position.

    All later rows of a position have to equal the first.
    """

    def __init__(self) -> None:
        self.difference = ""
        """The first pass in which a row differed from an earlier one."""
        self._digests: dict[int, bytes] = {}

    def compare(self, place: int, logits: Logits, way: str) -> None:
        """Compare rows [num_rows, vocab] of positions from `place` on. way: name of the pass."""
        for at, row in enumerate(logits, place):
            digest = blake2b(np.ascontiguousarray(row).data, digest_size=16).digest()
            if self._digests.setdefault(at, digest) != digest and not self.difference:
                self.difference = way


def text(begin: int, end: int) -> list[int]:
    """The ids at these positions of the compared text."""
    return [(place * place + place // 7) % NUM_IDS for place in range(begin, end)]


class Invariance:
    """The batch invariance of a main model, and how it is known.

    path: the file that keeps the result of a check; None: no file. off: the status if the runner's
    passes have another form.
    """

    def __init__(
        self, runner: Runner, path: Path | None, off: BatchInvariance | None = None
    ) -> None:
        self._path = path
        self._rows = ComparedRows()
        self._runner = runner if is_invariant(runner) else None
        self.status = off or describe(None)
        if self._runner is not None:
            self._conclude(self._runner, read_verdict(path))

    def compare(self, place: int, logits: Logits, way: str) -> None:
        """Compare rows of logits of `text` from other passes, such as timed ones."""
        if self._runner is not None and not self.status.is_checked:
            self._rows.compare(place, logits, way)
            if self._rows.difference:
                self._keep(self._runner, Verdict(self._rows.difference))

    def close(self) -> None:
        """Release the runner; the status stays."""
        self._runner = None

    def check(self, progress: Progress | None = None) -> BatchInvariance:
        """Run the check, unless the result is known. progress: see `check`.

        The models must not be in use.
        """
        if self._runner is not None and not self.status.is_checked:
            try:
                self._keep(self._runner, check(self._runner, self._rows, progress))
            except CacheFullError as error:
                self.status = BatchInvariance(True, f"not checked: {error}")
        return self.status

    def _keep(self, runner: InvariantRunner, verdict: Verdict) -> None:
        if self._path is not None:
            write_verdict(self._path, verdict)
        self._conclude(runner, verdict)

    def _conclude(self, runner: InvariantRunner, verdict: Verdict | None) -> None:
        """Set the form of passes by the result."""
        self.status = describe(verdict)
        runner.is_proven = self.status.is_proven
        if verdict is not None and runner.max_pass_tokens != verdict.max_pass_tokens:
            runner.max_pass_tokens = verdict.max_pass_tokens
            runner.clear_prefix_cache()  # of blocks from larger passes
        if not self.status.is_on:
            runner.is_invariant, self._runner = False, None


def is_invariant(runner: Runner) -> TypeGuard[InvariantRunner]:
    """Whether the passes of a runner have the batch-invariant form."""
    return runner.is_invariant


def describe(verdict: Verdict | None) -> BatchInvariance:
    """The status of a verdict; None: not checked yet."""
    if verdict is None:
        return BatchInvariance(True, NOT_CHECKED)
    if verdict.passed:
        return BatchInvariance(True, CHECKED, is_checked=True)
    reason = f"{verdict.difference} gave different logits on this machine: try batch_invariant=True"
    return BatchInvariance(False, reason, is_checked=True)


def check(runner: InvariantRunner, rows: ComparedRows, progress: Progress | None = None) -> Verdict:
    """Compute the same tokens in different passes, and compare their logits.

    At most 40 passes. rows: may hold rows from other passes over the text. progress: called with
    the fraction done, 0 to 1. Raises `CacheFullError` if memory has no room.
    """
    checker = _Checker(runner, rows)
    ways = (*checker.small_ways(), *checker.large_ways())
    try:
        for done, (most, way) in enumerate(ways):
            if progress is not None:
                progress(done / len(ways))
            runner.max_pass_tokens = most
            way()
            if rows.difference:
                break
    finally:
        checker.end()
        runner.max_pass_tokens = None
    if not rows.difference:
        return Verdict()
    if most == SMALL_PASS:
        return Verdict(rows.difference)
    rows.difference = ""  # passes of the remaining sizes agree
    return Verdict(max_pass_tokens=SMALL_PASS)


Way = Callable[[], None]


class _Checker:
    """A sequence with the text up to a position, other sequences, and passes over them."""

    def __init__(self, runner: InvariantRunner, rows: ComparedRows) -> None:
        self._runner = runner
        self._rows = rows
        self._most = min(runner.border or runner.max_length, LARGE_PASS + 2)
        self._place = min(PLACE, self._most // 3)
        self._open: list[Slot] = []

    def small_ways(self) -> Iterator[tuple[int | None, Way]]:
        """Small passes, by their maximum number of tokens."""
        ways = (self._sizes, self._singly, self._after_rejection, self._beside)
        yield from ((SMALL_PASS, way) for way in ways)
        yield SMALL_PASS, partial(self._prompt, 48, self._place + 2)
        yield SMALL_PASS, partial(self._prompt, SMALL_PASS, self._most)

    def large_ways(self) -> Iterator[tuple[int | None, Way]]:
        """Large prefill passes, compared with small ones."""
        for size in (LARGE_PASS, ODD_PASS):
            if size < self._most:
                yield None, partial(self._prompt, size, self._most)

    def end(self) -> None:
        """Free the sequences."""
        for slot in self._open:
            self._runner.free(slot)
        self._open.clear()

    @cached_property
    def _at_place(self) -> Slot:
        """A sequence with the text up to the compared position."""
        return self._read(self._place, SMALL_PASS)

    def _rollback(self) -> None:
        self._runner.rollback(self._at_place, self._place)

    def _sizes(self) -> None:
        for size in SIZES:
            if self._place + size <= self._most:
                self._compare(self._at_place, size, f"a pass over {size} tokens")
                self._rollback()

    def _singly(self) -> None:
        for _ in range(4):
            self._compare(self._at_place, 1, "tokens one by one")
        self._rollback()

    def _after_rejection(self) -> None:
        rejected = text(self._place + 7, min(self._place + 27, self._most + 7))
        self._runner.forward([Span(self._at_place, rejected, 1)])
        self._rollback()
        self._compare(self._at_place, 2, "a pass after 20 rejected tokens")
        self._rollback()

    def _beside(self) -> None:
        others = [self._new() for _ in range(3)]
        lengths = (1 + self._place // 20, 1 + self._place // 10, self._place // 5)
        spans = zip(others, lengths, strict=True)
        self._runner.forward([Span(other, text(5, 5 + length), 1) for other, length in spans])
        for own, each in ((1, 1), (2, 1), (1, 5), (2, 5)):
            beside = [Span(other, text(3, 3 + each), 1) for other in others]
            way = f"a pass over {own} tokens beside {len(others)} sequences of {each}"
            self._compare(self._at_place, own, way, beside)
            self._rollback()

    def _prompt(self, size: int, end: int) -> None:
        """Prefill the text in chunks of a size, and compare the last two tokens."""
        self.end()  # a small KV cache has room for only one sequence
        slot = self._read(end - 2, size)
        self._compare(slot, 2, f"a prompt in passes over {size} tokens")

    def _new(self) -> Slot:
        # A separate namespace: it shares nothing.
        self._open.append(self._runner.open(object()))
        return self._open[-1]

    def _read(self, end: int, size: int) -> Slot:
        slot = self._new()
        for begin in range(0, end, size):
            tokens = text(begin, min(begin + size, end))
            logits = self._runner.forward([Span(slot, tokens, 1)])[0]
            way = f"a prompt in passes over {size} tokens"
            self._rows.compare(begin + len(tokens) - 1, logits, way)
        return slot

    def _compare(self, slot: Slot, size: int, way: str, beside: Sequence[Span] = ()) -> None:
        """Feed a sequence the next tokens of the text, and compare their rows."""
        begin = slot.length
        span = Span(slot, text(begin, begin + size), size)
        logits = self._runner.forward([span, *beside])[0]
        self._rows.compare(begin, logits, way)


def read_verdict(path: Path | None) -> Verdict | None:
    """The verdict in a file; None if there is no valid one."""

    def read(content: dict[str, Any]) -> Verdict:
        most = content["max_pass_tokens"]
        return Verdict(str(content["difference"]), None if most is None else int(most))

    return read_kept(path, VERSION, read)


def write_verdict(path: Path, verdict: Verdict) -> None:
    """Write a verdict to a file; warns if the folder cannot be written."""
    write_kept(path, VERSION, asdict(verdict), "the result of the check", "checks")
