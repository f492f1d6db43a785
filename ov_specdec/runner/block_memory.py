"""Memory of the blocks of a paged KV cache: of the host, or of a GPU."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import prod
from mmap import mmap
from typing import Any, TypeAlias

import numpy as np
import openvino as ov
from numpy.typing import NDArray

from ov_specdec.errors import CacheFullError

Blocks = NDArray[np.uint8]
"""The content of blocks, [num_blocks, bytes]."""

CacheTensor: TypeAlias = ov.Tensor | ov.RemoteTensor


class HostMemory:
    """Tensors in the host's memory, by input name; none at first.

    They are [num_blocks, kv_heads, block_size, head_size] on the CPU. The system takes memory for
    their pages on first write only.
    """

    def __init__(self) -> None:
        self.tensors: dict[str, ov.Tensor] = {}

    def allocate(self, ports: Mapping[str, ov.ConstOutput], num_blocks: int) -> None:
        """Allocate `num_blocks` blocks of zeros, in place of all others.

        Zeros are needed because NaNs in unwritten memory would survive masking. Raises
        `CacheFullError` if there is no memory for them.
        """
        with full_where_it_fails(num_blocks):
            self.tensors = {
                name: _lazy_zeros(port.element_type, shape_of(port, num_blocks))
                for name, port in ports.items()
            }

    def copy(self, source: int, target: int) -> None:
        """Copy one block to another, in each tensor."""
        for tensor in self.tensors.values():
            content = content_of(tensor)
            content[target] = content[source]

    def read(self, name: str, blocks: Sequence[int]) -> Blocks:
        """A copy of some blocks of a tensor."""
        return content_of(self.tensors[name])[list(blocks)]

    def write(self, name: str, blocks: Sequence[int], content: Blocks) -> None:
        """Write content to some blocks of a tensor."""
        content_of(self.tensors[name])[list(blocks)] = content


class RemoteMemory:
    """Tensors in the memory of a GPU, which takes it at once.

    The host copies regions of blocks. Copies to regions are asynchronous; the next copy from a
    whole tensor waits for them.
    """

    def __init__(self, context: ov.RemoteContext) -> None:
        self.tensors: dict[str, ov.RemoteTensor] = {}
        self._context = context
        self._fence = context.create_tensor(ov.Type.u8, ov.Shape([1]), {})
        self._ports: Mapping[str, ov.ConstOutput] = {}

    def allocate(self, ports: Mapping[str, ov.ConstOutput], num_blocks: int) -> None:
        """See `HostMemory`."""
        self._ports = ports
        self.tensors = {}  # whose memory these may need
        with full_where_it_fails(num_blocks):
            self.tensors = {
                name: self._context.create_tensor(
                    port.element_type, ov.Shape(shape_of(port, num_blocks)), {}
                )
                for name, port in ports.items()
            }
        for name, tensor in self.tensors.items():
            zeros = self._zeros(name, num_blocks)  # of one tensor at a time
            region(tensor, 0, num_blocks).copy_from(zeros)
            self._wait()

    def copy(self, source: int, target: int) -> None:
        """Copy one block to another, on the device."""
        for tensor in self.tensors.values():
            region(tensor, target, target + 1).copy_from(region(tensor, source, source + 1))
        self._wait()

    def read(self, name: str, blocks: Sequence[int]) -> Blocks:
        """A copy of some blocks."""
        content = []
        for block in blocks:
            one = self._zeros(name, 1)
            region(self.tensors[name], block, block + 1).copy_to(one)
            content.append(content_of(one).copy())
        return np.concatenate(content)

    def write(self, name: str, blocks: Sequence[int], content: Blocks) -> None:
        """Write content to some blocks."""
        sources = []  # kept alive until all copies are done
        for block, own in zip(blocks, content, strict=True):
            sources.append(self._zeros(name, 1))
            content_of(sources[-1])[0] = own
            region(self.tensors[name], block, block + 1).copy_from(sources[-1])
        self._wait()

    def _wait(self) -> None:
        """Wait for all copies; their sources must live until then."""
        self._fence.copy_to(ov.Tensor(ov.Type.u8, [1]))

    def _zeros(self, name: str, num_blocks: int) -> ov.Tensor:
        port = self._ports[name]
        tensor = ov.Tensor(port.element_type, shape_of(port, num_blocks))
        content_of(tensor)[:] = 0
        return tensor


BlockMemory: TypeAlias = HostMemory | RemoteMemory
"""Memory of the blocks of a paged KV cache."""


def _lazy_zeros(element_type: ov.Type, shape: list[int]) -> ov.Tensor:
    num_bytes = prod(shape) * element_type.bitwidth // 8
    # Not by numpy: calloc writes zeros to memory that it reuses.
    memory = np.frombuffer(mmap(-1, num_bytes), np.uint8)
    return ov.Tensor(memory, ov.Shape(shape), element_type)


@contextmanager
def full_where_it_fails(num_blocks: int) -> Iterator[None]:
    """Raise `CacheFullError` if a device has no memory for `num_blocks` blocks."""
    try:
        yield
    except (MemoryError, OSError, OverflowError, RuntimeError) as error:
        raise CacheFullError(
            f"there is no memory for {num_blocks} blocks of KV cache: lower {{kv_cache_size}}, "
            "{max_batch_size} or {max_model_len}, or free some",
            kv_cache_size=...,
            max_batch_size=...,
            max_model_len=...,
        ) from error


def content_of(tensor: ov.Tensor) -> Blocks:
    """The content of a tensor by block; a view."""
    data: NDArray[Any] = tensor.data  # flat if several numbers share a byte
    return data.reshape(tensor.shape[0], -1).view(np.uint8)


def bytes_of_block(port: ov.ConstOutput) -> int:
    """Bytes of a block of a cache."""
    bits: int = port.element_type.bitwidth
    return prod(shape_of(port, 1)) * bits // 8


def shape_of(port: ov.ConstOutput, num_blocks: int) -> list[int]:
    """The shape of a cache of `num_blocks` blocks."""
    return [num_blocks, *(axis.get_length() for axis in list(port.partial_shape)[1:])]


def region(tensor: ov.RemoteTensor, begin: int, end: int) -> ov.RemoteTensor:
    """Some blocks of a tensor, as a view."""
    shape = list(tensor.get_shape())
    first, last = [begin, *(0 for _ in shape[1:])], [end, *shape[1:]]
    return ov.RemoteTensor(tensor, ov.Coordinate(first), ov.Coordinate(last))
