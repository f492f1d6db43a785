"""Encoders of encoder-decoder models."""

from threading import Lock

import numpy as np
import openvino as ov
from numpy.typing import NDArray

from ov_specdec.runner.source import Source
from ov_specdec.stats import Stopwatch

ATTENTION_MASK = "attention_mask"


class Encoder:
    """A compiled encoder. The decoders of a main and a draft model may share one.

    It keeps the output for the last source, because a draft's decoder needs it after the main's.
    Thread-safe.
    """

    def __init__(self, compiled: ov.CompiledModel) -> None:
        self._compiled = compiled
        self._inputs = {port.any_name for port in compiled.inputs}
        [self._reads] = self._inputs - {ATTENTION_MASK}
        self._request: ov.InferRequest | None = None
        self._last: tuple[Source, NDArray[np.float32]] | None = None
        self._lock = Lock()
        self.seconds = 0.0
        """Total time of its passes."""

    @property
    def width(self) -> int:
        """Size of its hidden states."""
        width: int = self._compiled.output(0).partial_shape[-1].get_length()
        return width

    def encode(self, source: Source) -> NDArray[np.float32]:
        """The hidden states [1, places, width] of a source."""
        with self._lock:
            if self._last is None or self._last[0] != source:
                watch = Stopwatch()
                self._last = source, self._run(source)
                self.seconds += watch.total()
            return self._last[1]

    def _run(self, source: Source) -> NDArray[np.float32]:
        feed = {self._reads: np.ascontiguousarray(source.values)}
        if ATTENTION_MASK in self._inputs:
            feed[ATTENTION_MASK] = np.ones(source.values.shape, np.int64)
        request, self._request = self._request or self._compiled.create_infer_request(), None
        output = request.infer(feed, share_inputs=True)
        self._request = request  # a request whose pass failed is not reused
        hidden: NDArray[np.float32] = output[self._compiled.output(0)]
        return hidden
