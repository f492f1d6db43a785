"""Packed forward passes over several sequences: inputs and execution."""

from collections.abc import Mapping, Sequence
from itertools import accumulate, chain, pairwise
from operator import add
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import openvino as ov
from numpy.typing import NDArray

from ov_specdec.runner.base import ATTENTION_INDICES, KEPT_INDICES, LOGITS_INDICES, LONG, Span
from ov_specdec.runner.block_memory import CacheTensor
from ov_specdec.sampling.logits import Logits

MAX_FEEDS = 256
"""Layouts of passes whose inputs are cached; making them takes some 30 us."""

Layout = tuple[tuple[int, int], ...]
"""Numbers of tokens and of needed rows of logits, for each span of a pass."""


class Form(NamedTuple):
    """The layout of the rows of a pass.

    all_rows: compute logits of all tokens, needed or not. is_invariant: compute no matrix product
    over a single row and no attention over a single query, because these sum in a different order.
    A single row is repeated, and the spare result dropped; in attention over several sequences, the
    last row of each. repeats_tokens: repeat single rows in the whole pass, not only in attention.
    has_long_rope: the sequences have the long rotary factors.
    """

    all_rows: bool = False
    is_invariant: bool = False
    repeats_tokens: bool = False
    has_long_rope: bool = False


class Feed:
    """The inputs of passes of one layout and form: allocated once, filled for each pass.

    For instance, sequence a feeds the tokens at 7, 8 and 9 and wants the last two rows of logits, b
    feeds the one at 4. In the invariant form, which repeats the last row of each in attention:

        sequence            |     a      |  b
        position_ids        | 7  8  9    |  4
        attention_indices   | 0  1  2  2 |  3  3   queries, by index in the pass
        subsequence_begins  | 0          |  4     6   of the queries
        kept_indices        | 0  1  2    |  4      results of attention that the pass keeps
        logits_indices      |    1  2    |  3

    A repeated token has its id and position. Its KV entry goes to the next index in the cache,
    which the next pass over the sequence overwrites.
    """

    def __init__(self, layout: Layout, form: Form) -> None:
        tokens = [tokens for tokens, _ in layout]
        least = 2 if form.is_invariant else 1
        attended = [max(own, least) for own in tokens]
        if form.is_invariant and not form.repeats_tokens and len(layout) > 1:
            # One number of rows for all layouts of as many tokens: OpenVINO prepares a pass of
            # another shape anew, for 2 of 17 ms (SmolLM2, 16 tokens of 8 sequences).
            attended = [own + 1 for own in tokens]
        fed = attended if form.repeats_tokens or sum(tokens) < least else tokens
        begins, attention_begins = [0, *accumulate(fed)], [0, *accumulate(attended)]
        needed = _ranges(
            [b + n - rows for b, (n, rows) in zip(begins, layout, strict=False)],
            [rows for _, rows in layout],
        )
        rows = np.arange(begins[-1])
        self.needed: slice | NDArray[np.int64] = needed
        """Indices of the needed rows among the logits of a pass, span by span."""
        if not form.all_rows:
            self.needed = slice(len(needed))
            rows = needed if len(needed) else rows[:1]
            # At least one, or two in the invariant form.
            rows = np.append(rows, np.repeat(rows[-1:], max(least - len(rows), 0)))
        elif len(needed) and needed[-1] - needed[0] == len(needed) - 1:
            self.needed = slice(int(needed[0]), int(needed[-1]) + 1)  # which copies nothing
        # For each row: its span, and its token's index in the span and in the pass.
        self._span_of = np.repeat(np.arange(len(layout)), fed)
        self._index = _clipped(fed, tokens)
        self._token = self._index + np.array([0, *accumulate(tokens)])[self._span_of]
        self._attended = attended
        queries = _clipped(attended, fed) + np.repeat(begins[:-1], attended)
        self._arrays: dict[str, NDArray[np.integer]] = {
            "input_ids": np.zeros(begins[-1], np.int64),
            "position_ids": np.zeros(begins[-1], np.int64),
            "past_lens": np.zeros(len(layout), np.int32),
            "subsequence_begins": np.array(attention_begins, np.int32),
            "block_indices_begins": np.zeros(len(layout) + 1, np.int32),
            "max_context_len": np.array(0, np.int32),
            LONG: np.array(form.has_long_rope),
            LOGITS_INDICES: rows,
            ATTENTION_INDICES: queries.astype(np.int32),
            KEPT_INDICES: _ranges(attention_begins, fed).astype(np.int32),
        }
        self.tensors = {
            name: ov.Tensor(array, shared_memory=True) for name, array in self._arrays.items()
        }
        self._blocks: list[list[int]] = []

    def fill(
        self,
        spans: Sequence[Span],
        past: Sequence[int],
        blocks: list[list[int]],
        states: Mapping[str, Sequence[int]],
    ) -> None:
        """Set the inputs for spans after `past` cached tokens each, in their blocks.

        states: inputs of recurrent layers.
        """
        lengths = np.array(past)
        tokens = np.array([*chain.from_iterable(span.tokens for span in spans)])
        self._arrays["input_ids"][:] = tokens[self._token]
        self._arrays["position_ids"][:] = lengths[self._span_of] + self._index
        self._arrays["past_lens"][:] = lengths
        self._arrays["max_context_len"][...] = max(map(add, past, self._attended))
        if self._blocks != blocks:
            self._blocks = [own.copy() for own in blocks]
            self._arrays["block_indices_begins"][1:] = np.cumsum([len(own) for own in blocks])
            self._put("block_indices", [*chain.from_iterable(blocks)])
        for name, values in states.items():
            self._put(name, values)

    def _put(self, name: str, values: Sequence[int]) -> None:
        """Set an input: in place if it has as many values as before, else as another tensor.

        Binding a tensor to a request takes longer than filling it.
        """
        array = self._arrays.get(name)
        if array is None or len(array) != len(values):
            array = self._arrays[name] = np.empty(len(values), np.int32)
            self.tensors[name] = ov.Tensor(array, shared_memory=True)
        array[:] = values


def _ranges(begins: Sequence[int], counts: Sequence[int]) -> NDArray[np.int64]:
    """`counts` consecutive indices from each of `begins`."""
    return np.concatenate([np.arange(b, b + n) for b, n in zip(begins, counts, strict=False)])


def _clipped(counts: Sequence[int], limits: Sequence[int]) -> NDArray[np.int64]:
    """Indices from 0 for each count, of which those beyond its limit repeat the last one."""
    pairs = zip(counts, limits, strict=True)
    return np.concatenate([np.arange(n).clip(max=limit - 1) for n, limit in pairs])


class PackedModel:
    """A compiled paged model and its infer request.

    size: the number of tokens of a static shape; None: any number.
    """

    def __init__(self, compiled: ov.CompiledModel, size: int | None = None) -> None:
        self._compiled = compiled
        self._request = compiled.create_infer_request()
        outputs = [port.names for port in compiled.outputs]
        self._logits = next(index for index, names in enumerate(outputs) if "logits" in names)
        self._inputs = {name for port in compiled.inputs for name in port.names}
        self._all_rows = size is not None or LOGITS_INDICES not in self._inputs
        self.repeats_rows = ATTENTION_INDICES in self._inputs
        """Whether its attention can have more rows than the pass has tokens."""
        self._feeds: dict[tuple[Layout, Form], Feed] = {}
        self._caches: Mapping[str, CacheTensor] = {}
        self._bound: dict[str, ov.Tensor] = {}

    def use_caches(self, tensors: Mapping[str, CacheTensor]) -> None:
        """Set the tensors of the KV cache, by input name."""
        self._caches = tensors
        for name, tensor in tensors.items():
            self._request.set_tensor(name, tensor)

    def forward(
        self,
        spans: Sequence[Span],
        past: Sequence[int],
        blocks: list[list[int]],
        is_invariant: bool = False,
        has_long_rope: bool = False,
        states: Mapping[str, Sequence[int]] = MappingProxyType({}),
    ) -> list[Logits]:
        """One pass. Logits [num_rows, vocab] of each span, views that the next one overwrites.

        is_invariant, has_long_rope: see `Form`. states: inputs of recurrent layers.
        """
        layout = tuple((len(span.tokens), span.num_rows) for span in spans)
        repeats_tokens = is_invariant and not self.repeats_rows
        form = Form(self._all_rows, is_invariant, repeats_tokens, has_long_rope)
        feed = self._feeds.get((layout, form))
        if feed is None:
            if len(self._feeds) >= MAX_FEEDS:
                self._feeds.clear()
            feed = self._feeds[layout, form] = Feed(layout, form)
        feed.fill(spans, past, blocks, states)
        for name, tensor in feed.tensors.items():
            if name in self._inputs and self._bound.get(name) is not tensor:
                self._request.set_tensor(name, tensor)
                self._bound[name] = tensor
        try:
            outputs = self._request.infer(share_outputs=True)
        except RuntimeError:  # a request whose pass failed is not reused
            self._request = self._compiled.create_infer_request()
            self._bound.clear()
            self.use_caches(self._caches)
            raise
        logits: Logits = [*outputs.values()][self._logits]
        rows = logits.reshape(-1, logits.shape[-1])[feed.needed]
        begins = accumulate((num_rows for _, num_rows in layout), initial=0)
        return [rows[begin:end] for begin, end in pairwise(begins)]
