"""Cross-attention of a decoder to a recording, for known tokens."""

from collections.abc import Sequence

import numpy as np
import openvino as ov
from numpy.typing import NDArray

from ov_specdec.runner.encoder import Encoder
from ov_specdec.runner.encoder_decoder import decoder_inputs
from ov_specdec.runner.source import Source

WEIGHTS = "alignment_weights"
"""Name of the output with cross-attention weights, [1, heads, tokens, places]."""


class Aligner:
    """A decoder without states, compiled for its alignment heads, and the encoder of its sources.

    It is separate from the decoder that generates, whose passes it does not change.
    """

    def __init__(self, compiled: ov.CompiledModel, encoder: Encoder) -> None:
        self._compiled = compiled
        self._encoder = encoder
        self._inputs = frozenset(port.any_name for port in compiled.inputs)

    def weights(self, source: Source, tokens: Sequence[int]) -> NDArray[np.float32]:
        """Cross-attention of each token to a source, by head: [heads, tokens, places]."""
        feed = decoder_inputs(tokens, 0, self._encoder.encode(source))
        request = self._compiled.create_infer_request()  # any thread may ask
        request.infer({name: feed[name] for name in self._inputs})
        weights: NDArray[np.float32] = request.get_tensor(WEIGHTS).data[0].copy()
        return weights
