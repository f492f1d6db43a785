"""Exclusive CPUs of a replica: disjoint sets, claimed by locks that end with the process.

Ray does not say which CPUs, and OpenVINO would pin all replicas to the first. Ray's ranks change.
"""

import os
import re
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from ov_specdec.errors import DeviceError

SYSTEM = Path("/sys/devices/system/cpu")


def read_nodes() -> list[list[int]]:
    """The CPUs that this process may use by NUMA node, hardware threads of a core in a row."""
    if sys.platform != "linux":
        return [[*range(os.cpu_count() or 1)]]
    nodes: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for cpu in os.sched_getaffinity(0):
        folder = SYSTEM / f"cpu{cpu}"
        node = next(folder.glob("node[0-9]*"), Path("node0")).name
        siblings = folder / "topology" / "thread_siblings_list"
        core = re.match(r"\d+", siblings.read_text("utf-8")) if siblings.exists() else None
        nodes[node].append((int(core[0]) if core else cpu, cpu))
    return [[cpu for _, cpu in sorted(nodes[node])] for node in sorted(nodes)]


def masks(nodes: list[list[int]], size: int) -> list[tuple[int, ...]]:
    """Disjoint sets of `size` CPUs, each within a NUMA node, and of whole cores if possible."""
    return [
        tuple(cpus[start : start + size])
        for cpus in nodes
        for start in range(0, len(cpus) - size + 1, size)
    ]


def largest_size(nodes: list[list[int]], count: int) -> int:
    """Maximum CPUs for each of `count` replicas. Raises `DeviceError` if there are none."""
    total = sum(map(len, nodes))
    for size in range(total // count, 0, -1):
        if len(masks(nodes, size)) >= count:
            return size
    problem = f"{count} replicas are more than the {total} CPUs of this machine"
    remedy = "start fewer, or give {num_threads} and other machines"
    raise DeviceError(f"{problem}: {remedy}", num_threads=...)


def claim(nodes: list[list[int]], size: int) -> tuple[tuple[int, ...], ExitStack]:
    """CPUs and their locks, which this user's other processes respect until this one ends."""
    folder = Path(tempfile.gettempdir()) / f"ov-specdec-cpus-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    for mask in masks(nodes, size):
        with ExitStack() as locks, suppress(Timeout):
            for cpu in mask:
                lock = FileLock(folder / f"{cpu}.lock", blocking=False, thread_local=False)
                locks.enter_context(lock)
            return mask, locks.pop_all()
    total = sum(map(len, nodes))
    problem = f"no {size} CPUs of one NUMA node are left for a replica here, of {total}"
    remedy = "start fewer replicas, or lower {num_threads}"
    raise DeviceError(f"{problem}: {remedy}", num_threads=...)


def pin(cpus: Sequence[int]) -> None:
    """Pin all present and future threads of this process to these CPUs; Linux only."""
    if sys.platform == "linux":
        for thread in Path("/proc/self/task").iterdir():
            with suppress(ProcessLookupError):  # the thread has ended
                os.sched_setaffinity(int(thread.name), cpus)
