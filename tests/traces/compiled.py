"""Models in place of compiled ones: they have the inputs, outputs and states that OpenVINO's have.

KV caches hold ids where others hold keys, and places where others hold values. So what a pass
attends to is read from the caches by block table, mask and beam index, as a real one does, and what
is in a wrong place is found.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import openvino as ov
from numpy.typing import NDArray

from tests.traces.describe import Model
from tests.traces.journal import Journal, Pass, Row, ScriptedError, asked_rows
from tests.traces.script import Script

SINGLE = 200_000
"""Added to the places of tokens that attention has read by themselves, where that matters."""

PADDING = 2
"""Columns of logits that no token has."""

LOGITS_INDICES = "logits_indices"
PAGED = (
    *("input_ids", "position_ids", "past_lens", "subsequence_begins", "block_indices"),
    *("block_indices_begins", "max_context_len", LOGITS_INDICES),
)
STATEFUL = ("input_ids", "attention_mask", "position_ids", "beam_idx", LOGITS_INDICES)
Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Port:
    """An input or output."""

    any_name: str
    partial_shape: Any = None
    element_type: Any = ov.Type.i64

    @property
    def names(self) -> set[str]:
        """As a port of OpenVINO has them."""
        return {self.any_name}


@dataclass
class Device:
    """What all requests of one model share. role: "main" or "draft"."""

    role: str
    model: Model
    script: Script
    journal: Journal
    num_passes: int = 0

    def begin(self, made: Pass) -> None:
        """Note a pass; its time goes by."""
        self.journal.events.append(made)
        first, more = self.model.ticks
        num_tokens = sum(len(row.fed) for row in made.rows)
        self.journal.clock += first + more * max(num_tokens - 1, 0)

    def end(self, logits: Array) -> Array:
        """The logits that come of it; a pass that is to fail does so once the cache has changed."""
        number, self.num_passes = self.num_passes, self.num_passes + 1
        if number in self.model.fails_at:
            raise ScriptedError("the device is gone")
        return logits

    def row(self, history: Sequence[int]) -> Array:
        """Logits after some ids, with columns that no token has."""
        row = self.script.row(history)
        return np.append(row, np.full(PADDING, 99, np.float32))

    @property
    def width(self) -> int:
        """Columns of logits."""
        return len(self.script.letters.tokens) + PADDING

    @property
    def garbage(self) -> Array:
        """The logits of what is no token."""
        return np.full(self.width, np.nan, np.float32)


@dataclass
class Compiled:
    """A compiled model. size: the tokens of its passes; None: any number."""

    device: Device
    size: int | None = None
    num_requests: int = 0

    @property
    def inputs(self) -> list[Port]:
        """The inputs, as the kind of model has them."""
        model = self.device.model
        names = PAGED if model.kv == "paged" else STATEFUL
        shape = ov.PartialShape([-1, 1, model.block_size, 1])
        caches = ("key_cache.0", "value_cache.0") if model.kv == "paged" else ()
        return [*map(Port, names), *(Port(name, shape, ov.Type.i64) for name in caches)]

    @property
    def outputs(self) -> list[Port]:
        """The outputs."""
        return [Port("logits")]

    def create_infer_request(self) -> "PagedRequest | StateRequest":
        """A new request."""
        number, self.num_requests = self.num_requests, self.num_requests + 1
        if self.device.model.kv == "paged":
            return PagedRequest(self.device, self.size)
        return StateRequest(self.device, number)


@dataclass
class Output:
    """A tensor that a request gives out."""

    data: Array


@dataclass
class PagedRequest:
    """An infer request of a model with paged attention."""

    device: Device
    size: int | None
    tensors: dict[str, ov.Tensor] = field(default_factory=dict)

    def set_tensor(self, name: str, tensor: ov.Tensor) -> None:
        """Bind an input."""
        self.tensors[name] = tensor

    def infer(self, share_outputs: bool) -> dict[str, Array]:
        """One pass; the logits [rows, vocab]."""
        given = {name: tensor.data for name, tensor in self.tensors.items()}
        ids, positions = given["input_ids"], given["position_ids"]
        scores: list[Array] = []
        rows: list[Row] = []
        num_spare = 0
        begins, tables = given["subsequence_begins"], given["block_indices_begins"]
        owns = [slice(begin, end) for begin, end in pairwise(begins)]
        blocks = [given["block_indices"][begin:end] for begin, end in pairwise(tables)]
        caches = [_Blocks(self.device, given, own) for own in blocks]
        past_lens = given["past_lens"].tolist()
        for cache, own, past in zip(caches, owns, past_lens, strict=True):  # before all reading
            cache.write(past, ids[own], positions[own])
        for cache, own, past in zip(caches, owns, past_lens, strict=True):
            held = cache.read(past, len(ids[own]))
            for place, position in enumerate(positions[own].tolist(), past):
                known = position == place and not cache.is_spare
                scores.append(self.device.row(held[: place + 1]) if known else self.device.garbage)
            if cache.is_spare:
                num_spare += own.stop - own.start
                continue
            is_next = rows and cache.blocks.tolist() == rows[-1].blocks and past > 0
            before = rows.pop().past if is_next else held[:past]  # of a generated token before
            start = own.start - (past - len(before))
            asked = [int(row - start) for row in given[LOGITS_INDICES] if start <= row < own.stop]
            fed = held[len(before) :]
            rows.append(Row(before, fed, asked_rows(asked, len(fed)), cache.blocks.tolist()))
        longest = max(
            past + own.stop - own.start for past, own in zip(past_lens, owns, strict=True)
        )
        self._check(given, len(ids), longest)
        note = f"and {num_spare} spare" if num_spare else ""
        self.device.begin(Pass(self.device.role, f"/{self.size}" if self.size else "", rows, note))
        rows_of_logits = np.array([scores[row] for row in given[LOGITS_INDICES]])
        return {"logits": self.device.end(rows_of_logits)}

    def _check(self, given: Mapping[str, Array], num_tokens: int, longest: int) -> None:
        require = self.device.journal.require
        require(self.size in (None, num_tokens), f"{num_tokens} tokens in a pass of {self.size}")
        require(int(given["max_context_len"]) == longest, "max_context_len is not the longest")
        if self.device.model.is_invariant:
            require(min(num_tokens, len(given[LOGITS_INDICES])) > 1, "a single row")


@dataclass
class _Blocks:
    """The blocks of one sequence in a pass."""

    device: Device
    given: Mapping[str, Array]
    blocks: Array

    def _slots(self, places: Array) -> tuple[Array, Array]:
        size = self.device.model.block_size
        return self.blocks[places // size], places % size

    @property
    def is_spare(self) -> bool:
        """Whether they are of no sequence, but of rows that pad a pass."""
        return set(self.blocks.tolist()) == {len(self.given["key_cache.0"]) - 1}

    def _is_single(self, num_tokens: int) -> bool:
        return num_tokens == 1 and self.device.model.is_invariant

    def write(self, past: int, ids: Array, positions: Array) -> None:
        """Put ids in the places after the cached ones."""
        blocks, offsets = self._slots(np.arange(past, past + len(ids)))
        self.given["key_cache.0"][blocks, 0, offsets, 0] = ids
        single = SINGLE * self._is_single(len(ids))
        self.given["value_cache.0"][blocks, 0, offsets, 0] = positions + single

    def read(self, past: int, num_tokens: int) -> list[int]:
        """The ids in the first places, each of which has to be in its own.

        Several are read after such that were read together too.
        """
        places = np.arange(past + num_tokens)
        blocks, offsets = self._slots(places)
        found = self.given["value_cache.0"][blocks, 0, offsets, 0]
        if self._is_single(num_tokens):
            found %= SINGLE
        self.device.journal.require(
            self.is_spare or bool((found == places).all()),
            f"blocks {self.blocks} hold the places {found}",
        )
        ids: list[int] = self.given["key_cache.0"][blocks, 0, offsets, 0].tolist()
        return ids


@dataclass
class State:
    """A KV state of a request, [rows, 1, entries, 1]."""

    name: str
    request: "StateRequest"
    content: Array

    @property
    def state(self) -> Output:
        """What it holds."""
        return Output(self.content.copy())

    @state.setter
    def state(self, tensor: ov.Tensor) -> None:
        self.content = tensor.data.copy()
        if self.name == "keys":
            rows, _, entries, _ = self.content.shape
            self.request.note(f"set to {entries} entries of {rows}")


EMPTY = np.zeros((1, 1, 0, 1), np.int64)


@dataclass
class StateRequest:
    """An infer request of a model that keeps its KV cache in states."""

    device: Device
    number: int
    logits: Array = field(default_factory=lambda: np.zeros(0))

    def __post_init__(self) -> None:
        self.states = [State(name, self, EMPTY) for name in ("keys", "places")]

    def query_state(self) -> list[State]:
        """The states."""
        return self.states

    def reset_state(self) -> None:
        """Forget all."""
        for state in self.states:
            state.content = EMPTY
        self.note("reset")

    def note(self, what: str) -> None:
        """Note what is done to the states."""
        self.device.journal.events.append(f"{self.device.role} #{self.number}: {what}")

    def get_tensor(self, name: str) -> Output:
        """The logits."""
        assert name == "logits"
        return Output(self.logits)

    def infer(self, given: Mapping[str, Array], **sharing: bool) -> None:
        """One pass; it changes the states, and gives logits [rows, places, vocab]."""
        self.logits = decode_rows(self, given)


def decode_rows(request: StateRequest, given: Mapping[str, Array]) -> Array:
    """Each row goes on from that of the states, keys and places, which its beam index names."""
    device = request.device
    ids, mask, sources = given["input_ids"], given["attention_mask"], given["beam_idx"]
    for state, new in zip(request.states, (ids, given["position_ids"]), strict=True):
        old = state.content[sources] if state.content.size else EMPTY.repeat(len(ids), 0)
        state.content = np.concatenate([old, new[:, None, :, None]], axis=2)
    keys, places = (state.content[:, 0, :, 0] for state in request.states)
    fits = mask.shape == keys.shape
    device.journal.require(fits, f"mask {mask.shape}, states {keys.shape}")
    width = ids.shape[1]
    rows, scores = [], []
    for key, place, visible in zip(keys, places, mask.astype(bool), strict=True):
        held, size = key[visible].tolist(), int(visible[-width:].sum())
        fits = (place[visible] == np.arange(len(held))).all()
        device.journal.require(bool(fits), f"a row sees the places {place[visible]}")
        scores.append(
            [_score(device, key, visible, len(key) - width + p) for p in given[LOGITS_INDICES]]
        )
        asked = asked_rows(given[LOGITS_INDICES].tolist(), width)
        rows.append(Row(held[: len(held) - size], held[len(held) - size :], asked))
    note = f"{keys.shape[1]} entries"
    if sources.tolist() != list(range(len(rows))):
        note += f" from {sources.tolist()}"
    device.begin(Pass(device.role, f" #{request.number}", rows, note))
    return device.end(np.array(scores))


def _score(device: Device, keys: Array, visible: Array, place: int) -> Array:
    if not visible[place]:
        return device.garbage
    return device.row(keys[: place + 1][visible[: place + 1]].tolist())
