"""What the replicas of a server are given: without Ray."""

import os
import pickle
import subprocess
import sys

import pytest

from ov_specdec.api.errors import ApiError
from ov_specdec.cluster import cpus
from ov_specdec.cluster.cpus import claim, largest_size, masks, read_nodes
from ov_specdec.errors import DeviceError

# Two NUMA nodes of three cores with two hardware threads each, numbered as Linux does.
NODES = [[0, 6, 1, 7, 2, 8], [3, 9, 4, 10, 5, 11]]


def test_hardware_threads_of_a_core_are_neighbours_within_their_node(tmp_path, monkeypatch):
    for cpu in range(12):
        folder = tmp_path / f"cpu{cpu}"
        (folder / "topology").mkdir(parents=True)
        (folder / f"node{cpu % 6 // 3}").mkdir()
        siblings = f"{cpu % 6},{cpu % 6 + 6}\n"
        (folder / "topology" / "thread_siblings_list").write_text(siblings, encoding="utf-8")
    monkeypatch.setattr(cpus, "SYSTEM", tmp_path)
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(12)))
    assert read_nodes() == NODES
    monkeypatch.setattr(cpus, "SYSTEM", tmp_path / "none")  # some containers have no topology
    assert read_nodes() == [[*range(12)]]


def test_masks_are_disjoint_whole_cores_of_one_node():
    assert masks(NODES, 2) == [(0, 6), (1, 7), (2, 8), (3, 9), (4, 10), (5, 11)]
    assert masks(NODES, 4) == [(0, 6, 1, 7), (3, 9, 4, 10)]
    assert masks(NODES, 7) == []


@pytest.mark.parametrize(("count", "size"), [(1, 6), (2, 6), (3, 3), (4, 3), (5, 2), (12, 1)])
def test_replicas_share_a_machine_evenly(count, size):
    assert largest_size(NODES, count) == size


def test_more_replicas_than_cpus_are_refused():
    with pytest.raises(DeviceError, match="13 replicas are more than the 12 CPUs"):
        largest_size(NODES, 13)


def test_claims_are_disjoint_until_they_are_released(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    nodes = [[0, 1, 2, 3, 4]]
    (first, locks), (second, _others) = claim(nodes, 2), claim(nodes, 2)
    assert (first, second) == ((0, 1), (2, 3))
    with pytest.raises(DeviceError, match=r"no 2 CPUs of one NUMA node are left .* of 5"):
        claim(nodes, 2)
    last, _more = claim(nodes, 1)
    assert last == (4,)
    locks.close()
    assert claim(nodes, 2)[0] == (0, 1)


def test_a_process_that_is_killed_leaves_its_cpus_to_others(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    code = (
        "import time; from ov_specdec.cluster.cpus import claim; "
        "cpus, locks = claim([[0]], 1); print(cpus, flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-c", code]
    own = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=own) as process:
        assert process.stdout.readline() == "(0,)\n"
        with pytest.raises(DeviceError):
            claim([[0]], 1)
        process.kill()
    assert claim([[0]], 1)[0] == (0,)


def test_errors_of_requests_come_out_of_a_pickle_as_they_went_in():
    error = ApiError(429, "later", "n", "queue_full", retry_after=1)
    assert pickle.loads(pickle.dumps(error)) == error  # noqa: S301
