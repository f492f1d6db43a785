"""The columns of the figures: how OpenVINO runs on kinds of processors that people have."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tests.benchmarks.peers.asks import BenchmarkError
from tests.benchmarks.record import LIMIT


@dataclass(frozen=True)
class Column:
    """One kind of processor.

    needs: beginnings of the names of instructions that it has. limit: what takes wider ones, named
    in `wider`, away from OpenVINO. properties: what OpenVINO does on such a processor by default,
    where it would do something else on one that is limited.
    """

    needs: Sequence[str] = ()
    limit: str = ""
    wider: Sequence[str] = ()
    properties: Mapping[str, str] = field(default_factory=dict)


COLUMNS = {
    "avx512-bf16": Column(("avx512_bf16",), "AVX512_CORE_BF16", ("amx",)),
    # Intel Core since 2021. Dynamic quantization stays as the plugin sets it there.
    "avx2-vnni": Column(
        ("avx_vnni",), "AVX2_VNNI", ("avx512",), {"INFERENCE_PRECISION_HINT": "f32"}
    ),
    "native": Column(),
}
"""By name. "native" is this processor as it is: to try the laboratory, and to compare commits."""


def enter(name: str, instructions: Sequence[str]) -> Column:
    """Limit this process and what it starts to a column's instructions.

    OpenVINO must not have compiled a model yet: it reads the limit once. `BenchmarkError` on a
    processor that lacks some.
    """
    column = COLUMNS[name]
    for need in column.needs:
        if not has(instructions, need):
            found = ", ".join(instructions) or "none of those known here"
            raise BenchmarkError(
                f"{name} needs a processor with {need}, and this one has {found}: measure on "
                "another one, or 'native'"
            )
    if any(has(instructions, wider) for wider in column.wider):
        os.environ[LIMIT] = column.limit
    return column


def has(instructions: Sequence[str], beginning: str) -> bool:
    """Whether there are instructions whose names begin so."""
    return any(each.startswith(beginning) for each in instructions)
