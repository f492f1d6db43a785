"""Loads of several requests: the loop that serves them, turns, and the figures of a report."""

import json

import pytest

from tests.benchmarks.peers.concurrency import (
    LoadOutcome,
    LoadPlan,
    LoadRun,
    load_ratios,
    num_tasks,
    reading_share,
    run_loads,
    summarize_loads,
)
from tests.benchmarks.peers.concurrency_report import ConcurrencyReport
from tests.benchmarks.peers.load import Load, Progress, Served, arrival_seconds, serve_load
from tests.benchmarks.tables import Interval
from tests.test_benchmarks_report import ENVIRONMENT


class FakeEngine:
    """Gives each request two tokens at each other step, and counts those under way."""

    def __init__(self):
        self.left = {}
        self.most = self.num_steps = 0
        self.added = []

    def add(self, number, prompt_ids, max_new_tokens):
        self.added.append((number, list(prompt_ids), self.num_steps))
        self.left[number] = max_new_tokens
        self.most = max(self.most, len(self.left))

    def step(self):
        self.num_steps += 1
        if self.num_steps % 2:
            return
        for number in list(self.left):
            num_tokens = min(2, self.left[number])
            self.left[number] -= num_tokens
            if self.left[number]:
                yield Progress(number, [7] * num_tokens, has_ended=False)
            else:
                del self.left[number]
                yield Progress(number, [7] * num_tokens, True, drafted=8, accepted=3)


def test_a_load_is_served_in_order_and_no_more_than_so_many_at_a_time():
    engine = FakeEngine()
    prompts = [[1], [2, 2], [3], [4], [5]]
    served = serve_load(engine, Load(prompts, [0.0] * 5, 5, 2))
    assert [(number, prompt) for number, prompt, _ in engine.added] == list(enumerate(prompts))
    assert [step for _, _, step in engine.added] == [0, 0, 6, 6, 12]
    assert engine.most == 2
    assert [each.prompt_tokens for each in served] == [1, 2, 1, 1, 1]
    assert all(each.token_ids == [7] * 5 for each in served)
    assert all([n for _, n in each.steps] == [2, 2, 1] for each in served)
    assert (served[0].drafted, served[0].accepted) == (8, 3)
    assert served[1].first_token_seconds < served[2].first_token_seconds  # waited in the queue
    assert len(served[0].step_seconds) == 2


def test_requests_are_served_once_they_have_come():
    engine = FakeEngine()
    served = serve_load(engine, Load([[1], [2]], [0.0, 0.05], 1, 2))
    assert served[1].steps[0][0] >= 0.05
    assert 0 <= served[1].first_token_seconds < served[1].steps[0][0]
    assert json.loads(json.dumps(served[0].as_dict())) == {
        **served[0].as_dict(),
        "steps": [list(step) for step in served[0].steps],
    }
    assert Served.from_dict(json.loads(json.dumps(served[0].as_dict()))) == served[0]


def test_arrivals_have_their_rate_and_a_seed():
    assert arrival_seconds("together", 3, seed=1) == [0.0, 0.0, 0.0]
    spread = arrival_seconds("poisson:20", 2001, seed=1)
    assert spread == arrival_seconds("poisson:20", 2001, seed=1)
    assert spread != arrival_seconds("poisson:20", 2001, seed=2)
    assert spread[0] == 0.0
    assert spread == sorted(spread)
    assert spread[-1] == pytest.approx(100, rel=0.1)


def plan(**changes):
    settings = {
        "prompts": [[i] for i in range(8)],
        "concurrency": (1, 3),
        "arrivals": "together",
        "rounds": 2,
        "max_new_tokens": 4,
        "timeout": 9.0,
    }
    return LoadPlan(**{**settings, **changes})


def test_the_loads_of_a_round_are_filled_with_the_prompts():
    def prompts(concurrency, **changes):
        loads = plan(**changes).loads(concurrency, 0)
        return [[prompt[0] for prompt in load.prompts] for load in loads]

    assert prompts(1) == [[i] for i in range(8)]
    assert prompts(3) == [[0, 1, 2], [3, 4, 5]]
    assert prompts(16) == [[*range(8), *range(8)]]
    assert prompts(1, arrivals="poisson:2") == [[0, 1, 2, 3], [4, 5, 6, 7]]
    first, second = (plan(arrivals="poisson:2").loads(3, round_)[0] for round_ in (0, 1))
    assert first.concurrency == 3
    assert len(first.arrivals) == 12
    assert first.arrivals != second.arrivals


class FakeWorker:
    """Serves each load with the seconds that its method takes per token; "b" dies at last."""

    SECONDS = {"a": 1.0, "b": 0.5}  # noqa: RUF012

    def __init__(self, log):
        self._log = log
        self._num_loads = 0
        self._is_dead = False

    def ask(self, request, timeout):
        assert timeout == 9.0
        assert not self._is_dead
        if "engine" in request:
            self._name = request["engine"]
            return {"loaded": {"seconds": 0.5}}
        load = Load(**request["load"])
        self._log.append((self._name, load))
        self._num_loads += 1
        seconds, num_tokens = self.SECONDS[self._name], load.max_new_tokens
        steps = [(seconds * (i + 1), 1) for i in range(num_tokens)]
        served = [Served(0.0, 5, [7] * num_tokens, steps, None, None) for _ in load.prompts]
        return {"served": [s.as_dict() for s in served], "peak_memory": 1000 * self._num_loads}

    def close(self):
        pass


def test_methods_serve_each_load_in_turns():
    log, steps = [], []
    loads = {name: {"engine": name} for name in ("a", "b")}
    outcome = run_loads(lambda: FakeWorker(log), loads, plan(), steps.append)
    # Each concurrency: a warm-up, the prompts alone, then in each round all loads.
    assert num_tasks(plan()) == (2 + 2 * 8) + (2 + 2 * 2)
    assert len(steps) == 2 * (1 + num_tasks(plan()))
    assert [name for name, _ in log] == ["a", "b"] * num_tasks(plan())
    assert log[0][1] == log[1][1]
    assert len(outcome.select("a", 1)) == 16
    assert len(outcome.select("b", 3)) == 4
    assert load_ratios(outcome, 3, "b", "a") == [2.0] * 4
    assert reading_share(outcome, 3, "a") == 0.25
    assert outcome.peak_memory["a", 1] < outcome.peak_memory["a", 3]
    assert outcome.load_seconds == {"a": 0.5, "b": 0.5}


def served(first, gap, token_ids=(1, 2, 3), arrival=0.0, **figures):
    """A request whose tokens come one by one."""
    steps = [(first + gap * i, 1) for i in range(len(token_ids))]
    figures = {"drafted": None, "accepted": None, **figures}
    return Served(arrival, 4, list(token_ids), steps, **figures)


def outcome():
    """Two rounds of a load of two requests."""
    runs = []
    for round_ in (0, 1):
        plain = [served(1.0, 1.0), served(2.0, 1.0, arrival=0.5)]
        draft = [
            served(0.5, 0.25, drafted=4, accepted=1),
            served(0.5, 0.75, (1, 2, 4), drafted=4, accepted=2),
        ]
        runs += [LoadRun("plain", 2, round_, 0, reads_only=False, served=plain)]
        runs += [LoadRun("constant-2", 2, round_, 0, reads_only=False, served=draft)]
        reading = [served(1.0, 0.0, (1,)), served(2.0, 0.0, (1,))]
        runs += [LoadRun("plain", 2, round_, 0, reads_only=True, served=reading)]
    return LoadOutcome(runs, {}, {("plain", 2): 3 * 2**20}, {"genai-plain": "not here"})


def test_a_row_has_the_figures_of_all_requests():
    plain, draft = summarize_loads(outcome())
    assert (plain["concurrency"], plain["method"], plain["loads"]) == (2, "plain", 2)
    assert plain["tokens/s"] == 6 / 4.0
    assert draft["tokens/s"] == 6 / 2.0
    assert [draft[f"ratio to plain{part}"] for part in ("", " (low)", " (high)")] == [2.0] * 3
    assert plain["first token(ms)"] == 1250.0  # of 1.0 and 1.5 s
    assert draft["step(ms)"] == 500.0
    assert draft["step(ms) (p95)"] == 750.0
    assert (plain["acceptance"], draft["acceptance"]) == (None, 3 / 8)
    assert plain["reading"] == 0.5
    assert draft["reading"] is None
    assert (plain["max_rss_mem(MiB)"], draft["max_rss_mem(MiB)"]) == (3.0, None)
    assert (plain["equal to plain"], draft["equal to plain"]) == (1.0, 0.5)


def test_an_interval_holds_the_median_and_leaves_out_what_is_rare():
    values = [1.0] * 50 + [2.0] * 49 + [9.0]
    interval = Interval.of(values)
    assert (interval.low, interval.high) == (1.0, 2.0)
    assert interval.low <= interval.median <= interval.high
    assert Interval.of(values) == interval
    assert Interval.of([3.0]) == Interval(3.0, 3.0, 3.0)
    assert Interval.of([]) is None


def test_the_report_is_written_in_every_format(tmp_path):
    report = ConcurrencyReport(ENVIRONMENT, {"rounds": 2}, outcome())
    files = {file.suffix: file for file in report.write(tmp_path)}
    text = files[".md"].read_text()
    assert text == report.markdown()
    assert text.startswith("Concurrency 2; reading prompts is 50% of plain's time:\n\n| method |")
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in table}) == 1
    assert table[3].startswith("| constant-2 | 3.0 (3.0 to 3.0) | 2.00 (2.00 to 2.00) | 500, 500 |")
    assert table[3].endswith("| 38% | - | 50% |")
    assert "- genai-plain: not here" in text
    content = json.loads(files[".json"].read_text())
    assert content["failures"] == {"genai-plain": "not here"}
    assert content["runs"][0]["served"][0]["steps"][0] == [1.0, 1]
    assert [row["method"] for row in content["summary"]] == ["plain", "constant-2"]
    assert files[".csv"].read_text().startswith("concurrency,method,framework,loads,tokens/s")


def test_without_the_baseline_ratios_are_left_out():
    found = outcome()
    found.runs = [run for run in found.runs if run.method != "plain"]
    text = ConcurrencyReport(ENVIRONMENT, {}, found).markdown()
    assert text.startswith("Concurrency 2:\n")
    assert "| constant-2 | 3.0 (3.0 to 3.0) | - |" in text
