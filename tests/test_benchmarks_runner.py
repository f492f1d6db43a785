"""Methods in turns: with fake workers, and with real processes that die."""

import io
import json
import sys

import pytest

from ov_specdec.errors import OptionError
from tests.benchmarks.peers import worker
from tests.benchmarks.peers.errors import BenchmarkError
from tests.benchmarks.peers.measurement import Measurement
from tests.benchmarks.peers.methods import (
    BASELINE,
    FULL,
    GROUPS,
    LOADS,
    OWN,
    QUICK,
    QUICK_LOADS,
    find_method,
    select_methods,
)
from tests.benchmarks.peers.process import WorkerProcess, load_request
from tests.benchmarks.peers.runner import Schedule, run_methods
from tests.benchmarks.peers.setup import Setup

DEATH = BenchmarkError("its process died")
SCHEDULE = Schedule(prompts=[[1, 2], [3]], rounds=2, max_new_tokens=4, timeout=9.0)


class FakeWorker:
    """Answers as a worker does, and fails where its script says: "load", or at the nth run."""

    def __init__(self, log, fails_at, error):
        self._log = log
        self._error = error
        self._fails_at = fails_at
        self._name = None
        self._runs = 0
        self._is_dead = False
        self.closed = False

    def ask(self, request, timeout):
        assert not self._is_dead
        assert timeout == SCHEDULE.timeout
        if "method" in request:
            self._name = request["method"]
            if self._fails_at.get(self._name) == "load":
                raise BenchmarkError("not installed")
            return {"loaded": {"seconds": 0.5}}
        if self._fails_at.get(self._name) == self._runs:
            self._is_dead = True
            raise self._error
        self._runs += 1
        self._log.append((self._name, tuple(request["prompt_ids"])))
        measurement = Measurement(len(request["prompt_ids"]), [5, 6], 1.0, 0.5)
        return {"measurement": measurement.as_dict(), "peak_memory": 1000 + self._runs}

    def close(self):
        self.closed = True


def run(names, fails_at, error=DEATH):
    log, workers, steps = [], [], []

    def start():
        workers.append(FakeWorker(log, fails_at, error))
        return workers[-1]

    loads = {name: {"method": name} for name in names}
    outcome = run_methods(start, loads, SCHEDULE, steps.append)
    assert all(worker.closed for worker in workers)
    return outcome, log, steps


def test_methods_take_turns_after_one_warm_up_each():
    outcome, log, steps = run(["a", "b"], {})
    assert log[:2] == [("a", (1, 2)), ("b", (1, 2))]
    in_turns = [("a", (1, 2)), ("b", (1, 2)), ("a", (3,)), ("b", (3,))]
    assert log[2:] == 2 * in_turns
    assert len(outcome.runs) == 8  # the warm-up is not among them
    assert [(r.method, r.round, r.prompt) for r in outcome.runs[4:6]] == [("a", 1, 0), ("b", 1, 0)]
    assert outcome.failures == {}
    assert outcome.load_seconds == {"a": 0.5, "b": 0.5}
    assert outcome.peak_memory == {"a": 1005, "b": 1005}
    assert len(steps) == 2 + 8


def test_a_method_that_does_not_load_is_reported_and_the_rest_goes_on():
    outcome, _, _ = run(["a", "b"], {"a": "load"})
    assert outcome.failures == {"a": "not installed"}
    assert {r.method for r in outcome.runs} == {"b"}
    assert len(outcome.runs) == 4


def test_a_method_that_dies_in_its_warm_up_is_reported():
    outcome, _, _ = run(["a", "b"], {"b": 0})
    assert outcome.failures == {"b": "its process died"}
    assert "b" not in outcome.load_seconds


def test_a_method_that_dies_later_keeps_what_it_measured():
    outcome, _, _ = run(["a", "b"], {"a": 3})  # the warm-up and two runs go well
    assert outcome.failures == {"a": "its process died"}
    assert [(r.round, r.prompt) for r in outcome.runs if r.method == "a"] == [(0, 0), (0, 1)]
    assert len([r for r in outcome.runs if r.method == "b"]) == 4


def test_an_interrupt_ends_all_methods_and_keeps_what_was_measured():
    outcome, log, _ = run(["a", "b"], {"b": 2}, KeyboardInterrupt())
    assert outcome.is_interrupted
    assert outcome.failures == {}
    assert [(r.method, r.prompt) for r in outcome.runs] == [("a", 0), ("b", 0), ("a", 1)]
    assert log[-1] == ("a", (3,))


def script(code):
    return WorkerProcess((sys.executable, "-c", code))


def test_a_process_answers():
    code = "import sys\nfor line in sys.stdin: print(line, end='', flush=True)"
    with script(code) as process:
        assert process.ask({"n": 1}, 30) == {"n": 1}
        assert process.ask({"n": 2}, 30) == {"n": 2}


def test_an_error_in_an_answer_leaves_the_process_usable():
    code = (
        "import json\nfor answer in ({'error': 'no such thing'}, {'n': 2}):\n"
        "    input(); print(json.dumps(answer), flush=True)"
    )
    with script(code) as process:
        with pytest.raises(BenchmarkError, match=r"^no such thing$"):
            process.ask({}, 30)
        assert process.ask({}, 30) == {"n": 2}


@pytest.mark.parametrize(
    ("code", "complaint"),
    [
        (
            "input(); import sys; print('no memory', file=sys.stderr); sys.exit(3)",
            "died with exit status 3: no memory",
        ),
        ("input(); import os; os.kill(os.getpid(), 9)", "died with signal 9"),
        ("", "died with exit status 0"),
    ],
)
def test_a_process_that_dies_says_how(code, complaint):
    with script(code) as process:
        with pytest.raises(BenchmarkError, match=complaint):
            process.ask({}, 30)
        with pytest.raises(BenchmarkError, match="died"):
            process.ask({}, 30)


def test_a_process_that_hangs_is_stopped():
    with script("import time; time.sleep(600)") as process:
        with pytest.raises(BenchmarkError, match="no answer within 0 s: it was stopped"):
            process.ask({}, 0.2)
        with pytest.raises(BenchmarkError, match="died"):
            process.ask({}, 30)


def serve(*requests):
    answers = io.StringIO()
    worker.serve([json.dumps(request) for request in requests], answers)
    return [json.loads(line) for line in answers.getvalue().splitlines()]


def test_a_worker_loads_runs_and_names_what_goes_wrong(tiny_pair):
    setup = Setup(*map(str, tiny_pair), precision="exact")
    generation = {"prompt_ids": [5, 6, 7], "max_new_tokens": 8}
    early, unknown, loaded, run_, too_long = serve(
        generation,
        load_request("fastest", setup),
        load_request("constant-3", setup),
        generation,
        {"prompt_ids": [5] * 300, "max_new_tokens": 8},
    )
    assert early == {"error": "the first request must load a method"}
    assert "method 'fastest' does not exist" in unknown["error"]
    assert loaded["loaded"]["seconds"] > 0
    measurement = Measurement.from_dict(run_["measurement"])
    assert measurement.generated_tokens == 8
    assert measurement.prompt_tokens == 3
    assert measurement.drafted > 0
    assert sum(r.num_generated for r in measurement.rounds) == 8
    assert 0 < measurement.first_token_seconds < measurement.seconds
    assert run_["peak_memory"] > 2**20
    assert "300 tokens" in too_long["error"]


def test_methods_are_found_by_family_length_and_properties():
    method = find_method("stateful-constant-12@default")
    assert (method.length, method.takes_defaults) == (12, True)
    assert method.family is find_method("stateful-constant-1").family
    assert find_method("plain").length is None
    for name in (*GROUPS["all"], *QUICK, *LOADS, *QUICK_LOADS):
        assert find_method(name).name == name
    assert [method.name for method in select_methods(FULL)] == list(GROUPS["all"])


@pytest.mark.parametrize(
    "name", ["constant", "constant-0", "constant-257", "plain-3", "x", "@default"]
)
def test_a_method_that_does_not_exist_is_refused(name):
    with pytest.raises(OptionError, match=f"method '{name}' does not exist"):
        find_method(name)


def test_selected_methods_run_once_each_and_the_baseline_always():
    names = [method.name for method in select_methods(["constant-2", "own", "constant-2"])]
    assert names[:2] == [BASELINE, "constant-2"]
    assert len(names) == len(set(names)) == len(OWN) + 1


def test_a_method_with_default_properties_drops_those_of_the_setup(tiny_pair):
    setup = Setup(*map(str, tiny_pair), properties={"NO_SUCH_PROPERTY": "1"})
    with pytest.raises(Exception, match="NO_SUCH_PROPERTY"):
        find_method("plain").build(setup)
    assert find_method("plain@default").build(setup).run([5, 6], 4).generated_tokens == 4
