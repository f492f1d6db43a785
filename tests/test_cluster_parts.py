"""What the replicas of a server are given, and which one is chosen: without Ray."""

import pickle
import subprocess
import sys

import pytest

from ov_specdec.cluster.cpus import claim, largest_size, masks, pin
from ov_specdec.cluster.prefixes import BLOCK, Prefixes, hash_prefixes, preference
from ov_specdec.errors import DeviceError
from ov_specdec.openai import ApiError

# Two NUMA nodes of three cores with two hardware threads each, numbered as Linux does.
PLACES = {cpu: (cpu % 6 // 3, cpu % 6) for cpu in range(12)}


def test_prefixes_are_equal_as_far_as_their_blocks_are():
    first, second = list(range(4 * BLOCK)), list(range(4 * BLOCK))
    second[2 * BLOCK] = -1
    one, other = hash_prefixes(first), hash_prefixes(second)
    assert len(one) == 4
    assert [a == b for a, b in zip(one, other, strict=True)] == [True, True, False, False]


def test_blocks_that_are_not_full_do_not_count():
    assert hash_prefixes(range(BLOCK - 1)) == ()
    assert len(hash_prefixes(range(2 * BLOCK - 1))) == 1


def test_prefixes_of_another_namespace_differ():
    tokens = range(BLOCK)
    assert hash_prefixes(tokens, "a") != hash_prefixes(tokens, "b")
    assert hash_prefixes(tokens, "a") == hash_prefixes(tokens, "a")


def test_only_what_begins_at_the_beginning_is_known():
    known = Prefixes()
    known.remember("a", [b"1", b"2"])
    assert known.count("a", [b"1", b"2", b"3"]) == 2
    assert known.count("a", [b"0", b"1", b"2"]) == 0
    assert known.count("b", [b"1"]) == 0


def test_what_was_sent_longest_ago_is_forgotten_from_its_end():
    known = Prefixes(capacity=3)
    known.remember("a", [b"1", b"2"])
    known.remember("a", [b"3", b"4"])
    assert known.count("a", [b"1", b"2"]) == 1
    assert known.count("a", [b"3", b"4"]) == 2


def test_replicas_that_are_gone_are_forgotten():
    known = Prefixes()
    known.remember("a", [b"1"])
    known.remember("b", [b"1"])
    known.keep(["b"])
    assert known.count("a", [b"1"]) == 0
    assert known.count("b", [b"1"]) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        # num_known, num_blocks, num_running, max_running
        ((4, 4, 3, 4), (0, 4, 0, 4)),  # a conversation goes back to its replica
        ((0, 4, 0, 4), (0, 4, 1, 4)),  # what nobody knows goes to the idle one
        ((0, 10, 0, 4), (1, 10, 1, 4)),  # a short part that all share weighs less than load
        ((0, 0, 0, 4), (0, 0, 1, 4)),  # nor does a prompt without a full block fail
    ],
)
def test_the_replica_that_suits_better(one, other):
    assert preference(*one) > preference(*other)


def test_masks_are_disjoint_whole_cores_of_one_node():
    assert masks(PLACES, 2) == [(0, 6), (1, 7), (2, 8), (3, 9), (4, 10), (5, 11)]
    assert masks(PLACES, 4) == [(0, 6, 1, 7), (3, 9, 4, 10)]
    assert masks(PLACES, 7) == []


@pytest.mark.parametrize(("count", "size"), [(1, 6), (2, 6), (3, 3), (4, 3), (5, 2), (12, 1)])
def test_replicas_share_a_machine_evenly(count, size):
    assert largest_size(PLACES, count) == size


def test_more_replicas_than_cpus_are_refused():
    with pytest.raises(DeviceError, match="13 replicas are more than the 12 CPUs"):
        largest_size(PLACES, 13)


def test_claims_are_disjoint_until_they_are_released(tmp_path):
    places = {cpu: (0, cpu) for cpu in range(5)}
    first, second = claim(places, 2, tmp_path), claim(places, 2, tmp_path)
    assert (first.cpus, second.cpus) == ((0, 1), (2, 3))
    with pytest.raises(DeviceError, match="no 2 CPUs"):
        claim(places, 2, tmp_path)
    assert claim(places, 1, tmp_path).cpus == (4,)
    first.release()
    assert claim(places, 2, tmp_path).cpus == (0, 1)


def test_a_claim_that_fails_leaves_no_lock(tmp_path):
    places = {cpu: (0, cpu) for cpu in range(2)}
    last = claim({1: (0, 1)}, 1, tmp_path)
    with pytest.raises(DeviceError):
        claim(places, 2, tmp_path)
    last.release()
    assert claim(places, 2, tmp_path).cpus == (0, 1)


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


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is pinned")
def test_a_thread_that_ends_while_threads_are_pinned_does_no_harm(monkeypatch):
    pinned = []

    def set_affinity(thread, cpus):
        pinned.append(cpus)
        raise ProcessLookupError

    monkeypatch.setattr("os.sched_setaffinity", set_affinity)
    pin((0, 1))
    assert set(pinned) == {(0, 1)}


def test_errors_of_requests_come_out_of_a_pickle_as_they_went_in():
    error = ApiError(429, "later", "n", "queue_full", retry_after=1)
    assert pickle.loads(pickle.dumps(error)) == error  # noqa: S301
