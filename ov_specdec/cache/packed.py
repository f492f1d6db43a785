"""Passes over several sequences, packed one behind the other: their inputs, and what runs them."""

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import openvino as ov
from numpy.typing import NDArray

from ov_specdec.cache.session import ROWS, Span
from ov_specdec.logits import Logits

MAX_FEEDS = 256
"""Layouts of passes whose inputs are kept; to make them anew takes some 30 us."""

Layout = tuple[tuple[int, int], ...]
"""The tokens of each span of a pass, and the rows of logits that it wants."""


class Feed:
    """The inputs of passes of one layout: allocated once, filled for each pass.

    all_rows: have logits computed for all tokens, wanted or not.
    """

    def __init__(self, layout: Layout, all_rows: bool) -> None:
        ends = list(accumulate(tokens for tokens, _ in layout))
        wanted = [np.arange(end - rows, end) for end, (_, rows) in zip(ends, layout, strict=True)]
        self.wanted = np.concatenate(wanted)
        """The places in the pass whose logits are wanted, one span's behind the other's."""
        self._spans = list(zip([0, *ends[:-1]], ends, strict=True))
        self._arrays: dict[str, NDArray[np.integer]] = {
            "input_ids": np.zeros(ends[-1], np.int64),
            "position_ids": np.zeros(ends[-1], np.int64),
            "past_lens": np.zeros(len(layout), np.int32),
            "subsequence_begins": np.array([0, *ends], np.int32),
            "block_indices_begins": np.zeros(len(layout) + 1, np.int32),
            "max_context_len": np.array(0, np.int32),
            ROWS: np.arange(ends[-1]) if all_rows else self.wanted,
        }
        self.tensors = {
            name: ov.Tensor(array, shared_memory=True) for name, array in self._arrays.items()
        }
        self._blocks: list[list[int]] = []

    def fill(self, spans: Sequence[Span], past: Sequence[int], blocks: list[list[int]]) -> None:
        """Set the inputs for spans after `past` cached tokens each, in the blocks of each."""
        longest = 0
        for span, length, (begin, end) in zip(spans, past, self._spans, strict=True):
            total = length + end - begin
            self._arrays["input_ids"][begin:end] = span.tokens
            self._arrays["position_ids"][begin:end] = np.arange(length, total)
            longest = max(longest, total)
        self._arrays["past_lens"][:] = past
        self._arrays["max_context_len"][...] = longest
        if self._blocks != blocks:
            self._blocks = [own.copy() for own in blocks]
            self._arrays["block_indices_begins"][1:] = np.cumsum([len(own) for own in blocks])
            self.tensors["block_indices"] = ov.Tensor(np.concatenate(blocks).astype(np.int32))


class PackedModel:
    """A compiled paged model and its infer request.

    size: the number of tokens that it was compiled for; None: any number.
    """

    def __init__(self, compiled: ov.CompiledModel, size: int | None = None) -> None:
        self._compiled = compiled
        self._request = compiled.create_infer_request()
        self._size = size
        self._inputs = {port.any_name for port in compiled.inputs}
        self._feeds: dict[Layout, Feed] = {}
        self._caches: dict[str, ov.Tensor] = {}
        self._bound: dict[str, ov.Tensor] = {}

    def use_caches(self, tensors: dict[str, ov.Tensor]) -> None:
        """Read and write the KV cache in these tensors, by the names of the inputs."""
        self._caches = tensors
        self._inputs -= tensors.keys()
        for name, tensor in tensors.items():
            self._request.set_tensor(name, tensor)

    def run(
        self, spans: Sequence[Span], past: Sequence[int], blocks: list[list[int]]
    ) -> list[Logits]:
        """One pass. Logits [num_rows, vocab] of each span, views that the next one overwrites."""
        layout = tuple((len(span.tokens), span.num_rows) for span in spans)
        feed = self._feed(layout)
        feed.fill(spans, past, blocks)
        rows = self._infer(feed)
        if len(rows) > len(feed.wanted):
            rows = rows[feed.wanted]
        ends = list(accumulate(num_rows for _, num_rows in layout))
        return [rows[begin:end] for begin, end in zip([0, *ends[:-1]], ends, strict=True)]

    def _feed(self, layout: Layout) -> Feed:
        """Inputs for a pass, those of an earlier one of that layout where there was one."""
        if layout not in self._feeds:
            if len(self._feeds) >= MAX_FEEDS:
                self._feeds.clear()
            self._feeds[layout] = Feed(layout, all_rows=self._size is not None)
        return self._feeds[layout]

    def _infer(self, feed: Feed) -> Logits:
        """Logits of the rows that are wanted, or of all."""
        for name in self._inputs:
            if self._bound.get(name) is not feed.tensors[name]:
                self._request.set_tensor(name, feed.tensors[name])
                self._bound[name] = feed.tensors[name]
        try:
            self._request.infer(share_outputs=True)
        except RuntimeError:
            self._renew_request()
            raise
        logits: Logits = self._request.get_tensor("logits").data
        return logits.reshape(-1, logits.shape[-1])

    def _renew_request(self) -> None:
        """Go on, after an error, with an infer request that has no traces of it."""
        self._request = self._compiled.create_infer_request()
        self._bound.clear()
        self.use_caches(self._caches)
