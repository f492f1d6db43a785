"""Work between sequences, in a thread of its own, and the check of batch invariance by itself."""

import subprocess
import sys
from contextlib import closing
from pathlib import Path
from threading import Event, Semaphore, Thread
from threading import enumerate as enumerate_threads

import pytest

from ov_specdec import GenerationOptions, SpeculativePipeline
from ov_specdec.engine import loop
from ov_specdec.engine.answers import Answers
from ov_specdec.engine.loop import EngineLoop
from ov_specdec.engine.scheduler import SHARED_CHUNK
from ov_specdec.models.folder import ModelFolder
from ov_specdec.models.invariance import look_up
from ov_specdec.results.chunks import collect
from ov_specdec.runner.base import Span
from tests.support.fakes import ScriptedModel, Separating, mixing
from tests.support.scripted import generator
from tests.support.server import wait_until

PATIENCE = 60.0
"""Seconds after which a thread counts as stuck."""


@pytest.fixture
def no_pause(monkeypatch):
    monkeypatch.setattr(loop, "IDLE", 0.0)
    monkeypatch.setattr(loop, "BUSY", 0.0)


class Work:
    """Idle work of three passes of the main model, each of which waits for a permit."""

    def __init__(self):
        self.main = ScriptedModel(mixing(1))
        self.left, self.num_begun = 3, 0
        self.entered, self.permits = Event(), Semaphore(0)
        self.text = generator(self.main)
        self.text.loop = EngineLoop(self.text.loop.engine, [self])

    @property
    def is_pending(self):
        return bool(self.left)

    def passes(self):
        self.num_begun += 1
        slot = self.main.open(object())
        try:
            while self.left:
                self.entered.set()
                assert self.permits.acquire(timeout=PATIENCE)
                self.main.forward([Span(slot, [1, 2, 3, 4, 5], 1)])
                self.left -= 1
                yield
        finally:
            slot.free()

    def enter(self):
        """Give an answer, after which the work begins."""
        assert generate(self.text) == alone()
        assert self.entered.wait(PATIENCE)

    def permit(self, is_due=lambda: True):
        """Let it run, once this is due."""
        wait_until(is_due)
        self.permits.release(100)

    def finish(self):
        """Wait for its end, which leaves nothing behind."""
        wait_until(lambda: not self.left and self.text.loop._worker is None)
        assert self.main.pool.num_used == 0


def generate(text, prompt="ABC"):
    return collect(text.stream(prompt, GenerationOptions(max_new_tokens=12))).token_ids


def alone(prompt="ABC"):
    return generate(generator(ScriptedModel(mixing(1))), prompt)


def in_thread(function):
    """The results of a function in another thread, once it has ended."""
    results = []
    thread = Thread(target=lambda: results.append(function()))
    thread.start()
    return thread, results


def test_it_begins_after_an_answer_and_ends_once_it_is_done(no_pause):
    work = Work()
    assert work.num_begun == 0
    work.enter()
    work.permit()
    work.finish()
    assert generate(work.text, "QRS") == alone("QRS")
    assert (work.num_begun, work.left) == (1, 0)


def test_a_request_waits_for_one_pass_and_finds_all_memory_free(no_pause):
    work = Work()
    work.enter()
    thread, answers = in_thread(lambda: generate(work.text, "QRS"))
    seen, forward = [], work.main.forward
    work.main.forward = lambda spans: seen.append(work.left) or forward(spans)
    work.permit(lambda: work.text.loop._added)
    thread.join(PATIENCE)
    assert answers == [alone("QRS")]
    assert seen[:2] == [3, 2]  # the pass that ran, and the first of the request
    work.finish()
    assert work.num_begun == 2  # it went on afterwards


def test_on_a_busy_machine_it_waits(no_pause, monkeypatch):
    usage, asked = [100.0], Event()
    monkeypatch.setattr(loop, "BUSY", 1000.0)
    monkeypatch.setattr(loop.psutil, "cpu_percent", lambda: asked.set() or usage[0])
    work = Work()
    assert generate(work.text) == alone()
    for _ in range(3):  # before the first decision, and after two
        asked.clear()
        assert asked.wait(PATIENCE)
    assert work.num_begun == 0
    usage[0] = 0.0
    work.permit()
    work.finish()
    assert work.num_begun == 1


def test_who_needs_the_models_alone_waits_for_one_pass(no_pause):
    work = Work()
    work.enter()

    def use():
        with work.text.loop.alone():
            return work.left, work.main.pool.num_used

    thread, results = in_thread(use)
    work.permit(lambda: work.text.loop._num_asking)
    thread.join(PATIENCE)
    assert results == [(2, 0)]
    work.finish()


def test_closing_ends_it(no_pause):
    work = Work()
    work.enter()
    work.text.loop.close()
    work.permit()
    wait_until(lambda: work.text.loop._worker is None)
    assert work.left == 2
    assert work.main.pool.num_used == 0


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_error_ends_it_and_harms_no_request(no_pause):
    work = Work()
    work.main.fails_in = 10**9
    work.enter()
    work.main.fails_in = 0
    work.permit()
    wait_until(lambda: all(thread.name != "ov-specdec idle" for thread in enumerate_threads()))
    assert generate(work.text, "QRS") == alone("QRS")
    assert (work.num_begun, work.main.pool.num_used) == (1, 0)


def test_answers_are_read_again_as_the_prompts_that_a_next_turn_begins_with(no_pause):
    """One pass at a time: a request that comes between two finds what the first has read."""
    main, prompt = Separating(mixing(1)), [*range(5, 15)]
    text, permits = generator(main), Semaphore(0)
    text.answers = answers = Answers(main)

    class Permitted:
        is_pending = property(lambda self: answers.is_pending)

        def passes(self):
            with closing(answers.passes()) as passes:
                for _ in passes:
                    assert permits.acquire(timeout=PATIENCE)
                    yield

    text.loop = EngineLoop(text.loop.engine, [Permitted()])

    def ask(ids):
        return collect(text.stream(ids, GenerationOptions(max_new_tokens=100)))

    first = ask(prompt)
    whole = [*prompt, *first.token_ids]
    wait_until(lambda: main.passes[-1] == SHARED_CHUNK)  # the first of two passes over the answer
    thread, results = in_thread(lambda: ask([*whole, 7]))
    wait_until(lambda: text.loop._added)
    permits.release()
    thread.join(PATIENCE)
    assert len(prompt) < results[0].stats.cached_tokens <= len(prompt) + SHARED_CHUNK
    permits.release(100)
    wait_until(lambda: not answers.is_pending and text.loop._worker is None)
    assert ask([*whole, 8, 9]).stats.cached_tokens >= len(whole) - 1
    assert main.pool.num_used == 0


ENDLESS = """
from threading import Thread
from time import sleep
from ov_specdec import GenerationOptions
from ov_specdec.engine import loop
from ov_specdec.engine.loop import EngineLoop
from tests.support.fakes import ScriptedModel, mixing
from tests.support.scripted import generator

class Work:
    is_pending = True

    def passes(self):
        while True:
            print("works", flush=True)
            sleep(0.05)
            print("worked", flush=True)
            yield

loop.IDLE = loop.BUSY = {pause}
text = generator(ScriptedModel(mixing(1)))
text.loop = EngineLoop(text.loop.engine, [Work()])
options = GenerationOptions(max_new_tokens=12)
thread = Thread(target=lambda: list(text.stream("ABC", options)), daemon=True)
thread.start()
thread.join()
sleep({rest})
"""


@pytest.mark.parametrize(("pause", "rest", "works"), [(0.0, 0.5, True), (1000.0, 0.0, False)])
def test_a_process_ends_without_it(pause, rest, works):
    script = ENDLESS.format(pause=pause, rest=rest)
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=Path(__file__).parents[2],
        timeout=PATIENCE,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert ("works" in done.stdout) is works
    assert done.stdout.count("works") == done.stdout.count("worked")  # it ends with its pass


@pytest.fixture
def new_user(monkeypatch, tmp_path):
    """A user without kept files."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_a_pipeline_checks_itself_after_its_first_answer(no_pause, new_user, tiny_pair):
    with SpeculativePipeline(*tiny_pair, profile="none") as pipeline:
        assert not pipeline.batch_invariant.is_checked
        first = pipeline.generate("def f(", max_new_tokens=8)
        assert not first.stats.batch_invariant.is_checked
        wait_until(lambda: pipeline.batch_invariant.is_checked)
        checked, config = pipeline.batch_invariant, pipeline.main.config
        again = pipeline.generate("def f(", max_new_tokens=8)
        assert again.stats.batch_invariant == checked
        if checked.is_on:
            assert again.token_ids == first.token_ids
    assert look_up(ModelFolder.read(tiny_pair[0]), config) == checked
