"""Recurrent states of a paged model: their tensors."""

from collections.abc import Mapping

import openvino as ov

from ov_specdec.cache.state_table import StatePool
from ov_specdec.errors import CacheFullError, Option
from ov_specdec.runner.block_memory import HostMemory, bytes_of_block

STATES = ("conv_state_table.", "gated_delta_state_table.")
"""Prefixes of the inputs with states; a layer has one or both."""

NUM_STATES = 64
"""Default number of states."""


class RecurrentStates:
    """The tensors of a model's recurrent states, [num_blocks, ...] each, in the host's memory.

    OpenVINO's `PagedCausalConv1D` and `PagedGatedDeltaNet` read the state before a pass from the
    first given block of a sequence, and write states after its tokens to the others. Memory is
    committed on first write.
    """

    def __init__(self, ports: Mapping[str, ov.ConstOutput]) -> None:
        self.pool = StatePool(NUM_STATES)
        self._ports = ports
        self._memory = HostMemory()

    @property
    def tensors(self) -> Mapping[str, ov.Tensor]:
        """The tensors by input name."""
        if not self._memory.tensors:
            self._memory.resize(self._ports, self.pool.blocks.size)
        return self._memory.tensors

    def limit(self, num_states: int) -> None:
        """Set the number of states, before any sequence has one; `CacheFullError` if too few."""
        self.pool.blocks.size = self.pool.blocks.max_blocks = num_states
        self._memory = HostMemory()
        if not self.pool.has_room:
            size = sum(map(bytes_of_block, self._ports.values()))
            raise CacheFullError(
                f"there is memory for {num_states} recurrent states of {size} "
                "bytes, too few for a sequence: raise ",
                Option("kv_cache_size"),
                ", or free some memory",
            )
