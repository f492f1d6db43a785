"""Exclusive CPUs of a replica: disjoint sets, claimed by locks that end with the process."""

import os
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from ov_specdec.errors import DeviceError, Option

SYSTEM = Path("/sys/devices/system/cpu")

Place = tuple[int, int]
"""NUMA node and core of a CPU. CPUs of one core are its hardware threads."""


def masks(places: Mapping[int, Place], size: int) -> list[tuple[int, ...]]:
    """Disjoint sets of `size` CPUs, each within a NUMA node, and of whole cores if possible.

    places: by CPU. CPUs that do not fill a set are left out.
    """
    nodes: defaultdict[int, list[int]] = defaultdict(list)
    for cpu in sorted(places, key=lambda cpu: (*places[cpu], cpu)):
        nodes[places[cpu][0]].append(cpu)
    return [
        tuple(cpus[start : start + size])
        for cpus in nodes.values()
        for start in range(0, len(cpus) - size + 1, size)
    ]


def largest_size(places: Mapping[int, Place], count: int) -> int:
    """Maximum CPUs for each of `count` replicas. Raises `DeviceError` if there are none."""
    for size in range(len(places) // count, 0, -1):
        if len(masks(places, size)) >= count:
            return size
    raise DeviceError(
        f"{count} replicas are more than the {len(places)} CPUs of this machine: start fewer, or "
        "give ",
        Option("num_threads"),
        " and other machines",
    )


def read_places() -> dict[int, Place]:
    """NUMA node and core of the CPUs that this process may use."""
    return {cpu: (_node_of(cpu), _core_of(cpu)) for cpu in _usable()}


@dataclass(frozen=True)
class Claim:
    """Exclusive CPUs, until the claim is released or its process ends."""

    cpus: tuple[int, ...]
    locks: tuple[FileLock, ...]

    def release(self) -> None:
        """Release the locks."""
        for lock in self.locks:
            lock.release()


def claim(places: Mapping[int, Place], size: int, folder: Path | None = None) -> Claim:
    """Claim `size` CPUs; `DeviceError` if no set of `masks` is free.

    folder: of the locks; by default one for all processes of this user.
    """
    folder = _lock_folder() if folder is None else folder
    folder.mkdir(mode=0o700, exist_ok=True)
    for mask in masks(places, size):
        locks = _lock(mask, folder)
        if locks is not None:
            return Claim(mask, locks)
    raise DeviceError(
        f"no {size} CPUs of one NUMA node are left for a replica here, of {len(places)}: start "
        "fewer replicas, or lower ",
        Option("num_threads"),
    )


def pin(cpus: Sequence[int]) -> None:
    """Pin all present and future threads of this process to these CPUs; Linux only."""
    if sys.platform == "linux":
        for thread in Path("/proc/self/task").iterdir():
            with suppress(ProcessLookupError):  # the thread has ended
                os.sched_setaffinity(int(thread.name), cpus)


def _lock(mask: Sequence[int], folder: Path) -> tuple[FileLock, ...] | None:
    """Locks of all these CPUs; None if any is taken."""
    locks: list[FileLock] = []
    for cpu in mask:
        lock = FileLock(folder / f"{cpu}.lock", thread_local=False)
        try:
            lock.acquire(blocking=False)
        except Timeout:
            Claim((), tuple(locks)).release()
            return None
        locks.append(lock)
    return tuple(locks)


def _lock_folder() -> Path:
    user = os.getuid() if sys.platform != "win32" else ""
    return Path(tempfile.gettempdir()) / f"ov-specdec-cpus-{user}"


def _usable() -> list[int]:
    if sys.platform == "linux":
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def _node_of(cpu: int) -> int:
    nodes = [path.name.removeprefix("node") for path in (SYSTEM / f"cpu{cpu}").glob("node[0-9]*")]
    return int(nodes[0]) if nodes else 0


def _core_of(cpu: int) -> int:
    """The core's first CPU, a unique name across sockets."""
    siblings = SYSTEM / f"cpu{cpu}" / "topology" / "thread_siblings_list"
    try:
        first = siblings.read_text(encoding="utf-8").replace("-", ",").partition(",")[0]
        return int(first)
    except (OSError, ValueError):
        return cpu
