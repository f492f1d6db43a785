"""What the replicas of a server are given: without Ray."""

import pickle
import subprocess
import sys

import pytest

from ov_specdec.cluster.cpus import claim, largest_size, masks
from ov_specdec.errors import DeviceError
from ov_specdec.openai import ApiError

# Two NUMA nodes of three cores with two hardware threads each, numbered as Linux does.
CORES = {cpu: (cpu % 6 // 3, cpu % 6) for cpu in range(12)}


def test_masks_are_disjoint_whole_cores_of_one_node():
    assert masks(CORES, 2) == [(0, 6), (1, 7), (2, 8), (3, 9), (4, 10), (5, 11)]
    assert masks(CORES, 4) == [(0, 6, 1, 7), (3, 9, 4, 10)]
    assert masks(CORES, 7) == []


@pytest.mark.parametrize(("count", "size"), [(1, 6), (2, 6), (3, 3), (4, 3), (5, 2), (12, 1)])
def test_replicas_share_a_machine_evenly(count, size):
    assert largest_size(CORES, count) == size


def test_more_replicas_than_cpus_are_refused():
    with pytest.raises(DeviceError, match="13 replicas are more than the 12 CPUs"):
        largest_size(CORES, 13)


def test_claims_are_disjoint_until_they_are_released(tmp_path):
    cores = {cpu: (0, cpu) for cpu in range(5)}
    first, second = claim(cores, 2, tmp_path), claim(cores, 2, tmp_path)
    assert (first.cpus, second.cpus) == ((0, 1), (2, 3))
    with pytest.raises(DeviceError, match="no 2 CPUs"):
        claim(cores, 2, tmp_path)
    assert claim(cores, 1, tmp_path).cpus == (4,)
    first.locks.close()
    assert claim(cores, 2, tmp_path).cpus == (0, 1)


def test_a_process_that_is_killed_leaves_its_cpus_to_others(tmp_path):
    code = (
        "import sys, time; from pathlib import Path; from ov_specdec.cluster.cpus import claim; "
        "kept = claim({0: (0, 0)}, 1, Path(sys.argv[1])); print(kept.cpus, flush=True); "
        "time.sleep(60)"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "(0,)\n"
        with pytest.raises(DeviceError):
            claim({0: (0, 0)}, 1, tmp_path)
        process.kill()
    assert claim({0: (0, 0)}, 1, tmp_path).cpus == (0,)


def test_errors_of_requests_come_out_of_a_pickle_as_they_went_in():
    error = ApiError(429, "later", "n", "queue_full", retry_after=1)
    assert pickle.loads(pickle.dumps(error)) == error  # noqa: S301
