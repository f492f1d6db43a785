"""Packed forward passes over several sequences: inputs and execution."""

from collections.abc import Mapping, Sequence
from itertools import accumulate, chain
from operator import add, attrgetter
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import openvino as ov
from numpy.typing import NDArray

from ov_specdec.runner.base import FEATURES, LOGITS_INDICES, LONG, STATES, Span, state_sizes
from ov_specdec.runner.block_memory import CacheTensor
from ov_specdec.sampling.logits import Logits

MAX_FEEDS = 256
"""Layouts of passes whose inputs are cached; making them takes some 30 us."""

Layout = tuple[tuple[int, int], ...]
"""Numbers of tokens and of needed rows of logits, for each span of a pass."""


class Form(NamedTuple):
    """The layout of the rows of a pass.

    all_rows: compute logits of all tokens, needed or not. is_invariant: compute no matrix product
    over a single row, because it sums in a different order. repeats_tokens: repeat single tokens of
    sequences, since attention over a single query does too. has_long_rope: the sequences have the
    long rotary factors.
    """

    all_rows: bool = False
    is_invariant: bool = False
    repeats_tokens: bool = False
    has_long_rope: bool = False


class Feed:
    """The inputs of passes of one layout and form: allocated once, filled for each pass.

    For instance, sequence a feeds the tokens at 7, 8 and 9 and wants the last two rows of logits, b
    feeds the one at 4, and repeats it:

        sequence            |    a    |  b
        position_ids        | 7  8  9 | 4  4
        subsequence_begins  | 0       | 3     5
        logits_indices      |    1  2 | 3

    The KV entry of a repeated token goes to the next index in the cache, which the next pass over
    the sequence overwrites.
    """

    def __init__(self, layout: Layout, form: Form) -> None:
        tokens = [tokens for tokens, _ in layout]
        fed = self._fed = [max(own, 2) for own in tokens] if form.repeats_tokens else tokens
        begins = [0, *accumulate(fed)]
        self.begins: Sequence[int] = begins
        """The first row of each span in the pass, and the number of rows."""
        needed = np.concatenate(
            [b + np.arange(n - rows, n) for b, (n, rows) in zip(begins, layout, strict=False)]
        )
        rows = np.arange(begins[-1])
        self.needed: slice | NDArray[np.int64] = needed
        """Indices of the needed rows among the logits of a pass, sequence by sequence."""
        if not form.all_rows:
            self.needed = slice(len(needed))
            rows = needed if len(needed) else rows[:1]
            # At least one, or two in the invariant form.
            least = 2 if form.is_invariant else 1
            rows = np.append(rows, np.repeat(rows[-1:], max(least - len(rows), 0)))
        elif len(needed) and needed[-1] - needed[0] == len(needed) - 1:
            self.needed = slice(int(needed[0]), int(needed[-1]) + 1)  # which copies nothing
        # For each row: its sequence, and its token's index in the sequence and in the pass.
        self._sequence = np.repeat(np.arange(len(layout)), fed)
        self._index = np.concatenate(
            [np.arange(n).clip(max=own - 1) for n, own in zip(fed, tokens, strict=True)]
        )
        self._token = self._index + np.array([0, *accumulate(tokens)])[self._sequence]
        self._arrays: dict[str, NDArray[np.integer]] = {
            "input_ids": np.zeros(begins[-1], np.int64),
            "position_ids": np.zeros(begins[-1], np.int64),
            "past_lens": np.zeros(len(layout), np.int32),
            "subsequence_begins": np.array(begins, np.int32),
            "block_indices_begins": np.zeros(len(layout) + 1, np.int32),
            "max_context_len": np.array(0, np.int32),
            LONG: np.array(form.has_long_rope),
            LOGITS_INDICES: rows,
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
        tokens = np.array([*chain.from_iterable(map(attrgetter("tokens"), spans))])
        self._arrays["input_ids"][:] = tokens[self._token]
        self._arrays["position_ids"][:] = lengths[self._sequence] + self._index
        self._arrays["past_lens"][:] = lengths
        self._arrays["max_context_len"][...] = max(map(add, past, self._fed))
        if self._blocks != blocks:
            self._blocks = [*map(list, blocks)]
            self._arrays["block_indices_begins"][1:] = np.cumsum([*map(len, blocks)])
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


def features_of(spans: Sequence[Span], begins: Sequence[int], width: int) -> NDArray[np.float32]:
    """The hidden states that the tokens of a pass are read with, [tokens, 1, width]."""
    features = np.zeros((begins[-1], 1, width), np.float32)
    for span, begin in zip(spans, begins, strict=False):
        if span.features is not None:
            features[begin : begin + len(span.tokens), 0] = span.features
    return features


class PackedModel:
    """A compiled paged model and its infer request.

    size: the number of tokens of a static shape; None: any number.
    """

    def __init__(self, compiled: ov.CompiledModel, size: int | None = None) -> None:
        self._compiled = compiled
        self._request = compiled.create_infer_request()
        outputs = [port.names for port in compiled.outputs]
        self._logits = next(index for index, names in enumerate(outputs) if "logits" in names)
        self._states = next((i for i, names in enumerate(outputs) if STATES in names), None)
        self._feature_size = state_sizes(compiled)[1]
        self._inputs = {name for port in compiled.inputs for name in port.names}
        self._all_rows = size is not None or LOGITS_INDICES not in self._inputs
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
        form: Form,
        states: Mapping[str, Sequence[int]] = MappingProxyType({}),
    ) -> Logits:
        """One pass. The needed rows of logits [rows, vocab], a view that the next one overwrites.

        It fills the hidden states of spans. states: inputs of recurrent layers.
        """
        feed = self._feed_of(spans, form._replace(all_rows=self._all_rows))
        feed.fill(spans, past, blocks, states)
        for name, tensor in feed.tensors.items():
            if name in self._inputs and self._bound.get(name) is not tensor:
                self._request.set_tensor(name, tensor)
                self._bound[name] = tensor
        if self._feature_size is not None:
            features = features_of(spans, feed.begins, self._feature_size)
            self._request.set_tensor(FEATURES, ov.Tensor(features, shared_memory=True))
        try:
            outputs = [*self._request.infer(share_outputs=True).values()]
        except RuntimeError:  # a request whose pass failed is not reused
            self._request = self._compiled.create_infer_request()
            self._bound.clear()
            self.use_caches(self._caches)
            raise
        if self._states is not None:
            for span, begin in zip(spans, feed.begins, strict=False):
                if span.hidden_states is not None:
                    rows = outputs[self._states][begin : begin + len(span.tokens), 0]
                    span.hidden_states[:] = rows
        logits: Logits = outputs[self._logits]
        needed: Logits = logits.reshape(-1, logits.shape[-1])[feed.needed]
        return needed

    def _feed_of(self, spans: Sequence[Span], form: Form) -> Feed:
        """The inputs of passes with this layout, made if needed."""
        layout = tuple([(len(span.tokens), span.num_rows) for span in spans])
        feed = self._feeds.get((layout, form))
        if feed is None:
            if len(self._feeds) >= MAX_FEEDS:
                self._feeds.clear()
            feed = self._feeds[layout, form] = Feed(layout, form)
        return feed
