"""Kernels of OpenVINO itself, such as attention, for AVX2 on a processor that has more.

oneDNN's limit does not reach them. They ask functions of OpenVINO which instructions there are; a
library that is loaded before it answers in its place.
"""

import os
import subprocess
import sys
from pathlib import Path
from tempfile import mkdtemp

from lab.benchmarks.peers.asks import BenchmarkError

PRELOAD = "LD_PRELOAD"

DENIED = (
    "avx512f",
    "avx512_core",
    "avx512_core_vnni",
    "avx512_core_fp16",
    "avx512_core_amx",
    "avx512_core_amx_int8",
    "avx512_core_amx_bf16",
    "avx512_core_amx_fp16",
    "bfloat16",
)
"""Instructions, as the functions spell them."""


def restart_limited() -> None:
    """Start this program again with the library, unless it has it; what it starts has it too."""
    if os.environ.get(PRELOAD):
        return
    source = "\n".join(f"bool with_cpu_x86_{name}() {{ return false; }}" for name in DENIED)
    library = Path(mkdtemp()) / "avx2.so"
    command = ["c++", "-shared", "-fPIC", "-x", "c++", "-", "-o", str(library)]
    try:
        subprocess.run(command, input=f"namespace ov {{\n{source}\n}}", text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise BenchmarkError(
            f"no library limits OpenVINO's own kernels ({error}): install a C++ compiler"
        ) from error
    os.execve(sys.executable, sys.orig_argv, {**os.environ, PRELOAD: str(library)})  # noqa: S606
