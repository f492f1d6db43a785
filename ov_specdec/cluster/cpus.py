"""Exclusive CPUs of a replica: disjoint sets, claimed by locks that end with the process.

Ray counts CPUs and does not say which: OpenVINO would pin the threads of all replicas to the first.
"""

import os
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple

from filelock import FileLock, Timeout

from ov_specdec.errors import DeviceError, Option

SYSTEM = Path("/sys/devices/system/cpu")

Core = tuple[int, int]
"""NUMA node and core of a CPU. CPUs of one core are its hardware threads."""


def masks(cores: Mapping[int, Core], size: int) -> list[tuple[int, ...]]:
    """Disjoint sets of `size` CPUs, each within a NUMA node, and of whole cores if possible.

    cores: by CPU. CPUs that do not fill a set are left out.
    """
    nodes: defaultdict[int, list[int]] = defaultdict(list)
    for cpu in sorted(cores, key=lambda cpu: (*cores[cpu], cpu)):
        nodes[cores[cpu][0]].append(cpu)
    return [
        tuple(cpus[start : start + size])
        for cpus in nodes.values()
        for start in range(0, len(cpus) - size + 1, size)
    ]


def largest_size(cores: Mapping[int, Core], count: int) -> int:
    """Maximum CPUs for each of `count` replicas. Raises `DeviceError` if there are none."""
    for size in range(len(cores) // count, 0, -1):
        if len(masks(cores, size)) >= count:
            return size
    raise DeviceError(
        f"{count} replicas are more than the {len(cores)} CPUs of this machine: start fewer, or "
        "give ",
        Option("num_threads"),
        " and other machines",
    )


def read_cores() -> dict[int, Core]:
    """NUMA node and core of the CPUs that this process may use."""
    if sys.platform != "linux":
        return {cpu: (0, cpu) for cpu in range(os.cpu_count() or 1)}
    return {cpu: _core_of(cpu) for cpu in sorted(os.sched_getaffinity(0))}


def _core_of(cpu: int) -> Core:
    """A core is named by its first CPU, which is unique across sockets."""
    folder = SYSTEM / f"cpu{cpu}"
    node = next((path.name.removeprefix("node") for path in folder.glob("node[0-9]*")), "0")
    try:
        siblings = (folder / "topology" / "thread_siblings_list").read_text(encoding="utf-8")
        return int(node), int(siblings.replace("-", ",").partition(",")[0])
    except (OSError, ValueError):
        return int(node), cpu


class Claim(NamedTuple):
    """Exclusive CPUs, until the locks are closed or the process ends."""

    cpus: tuple[int, ...]
    locks: ExitStack


def claim(cores: Mapping[int, Core], size: int, folder: Path | None = None) -> Claim:
    """Claim `size` CPUs; `DeviceError` if no set of `masks` is free.

    folder: of the locks; by default one for all processes of this user.
    """
    if folder is None:
        user = os.getuid() if sys.platform != "win32" else ""
        folder = Path(tempfile.gettempdir()) / f"ov-specdec-cpus-{user}"
    folder.mkdir(mode=0o700, exist_ok=True)
    for mask in masks(cores, size):
        with ExitStack() as locks, suppress(Timeout):
            for cpu in mask:
                lock = FileLock(folder / f"{cpu}.lock", blocking=False, thread_local=False)
                locks.enter_context(lock)
            return Claim(mask, locks.pop_all())
    raise DeviceError(
        f"no {size} CPUs of one NUMA node are left for a replica here, of {len(cores)}: start "
        "fewer replicas, or lower ",
        Option("num_threads"),
    )


def pin(cpus: Sequence[int]) -> None:
    """Pin all present and future threads of this process to these CPUs; Linux only."""
    if sys.platform == "linux":
        for thread in Path("/proc/self/task").iterdir():
            with suppress(ProcessLookupError):  # the thread has ended
                os.sched_setaffinity(int(thread.name), cpus)
