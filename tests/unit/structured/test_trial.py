"""The process that tries grammars: what ends it is refused, and the next one is tried."""

import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from math import inf
from time import sleep

import psutil
import pytest
from llguidance import LLMatcher

from ov_specdec.errors import BusyError, OptionError
from ov_specdec.options.generation import GenerationOptions
from ov_specdec.text import grammar
from ov_specdec.text.answer_format import CALL_FORMATS, AnswerFormat
from ov_specdec.text.grammar_process import MAX_WAIT, TOO_MUCH, Trial
from tests.support.server import wait_until
from tests.support.structured import FOLDER, SIZE, generator

GOOD = LLMatcher.grammar_from_regex("a{3}")
WRONG = LLMatcher.grammar_from_regex("(")
SLOW = LLMatcher.grammar_from_json_schema({"type": "integer", "multipleOf": 999_983})


def nested(depth):
    """A grammar of rules within rules."""
    rules = "\n".join(f"r{i}: r{i + 1}" for i in range(depth))
    return LLMatcher.grammar_from_lark(f'start: r0\n{rules}\nr{depth}: "a"')


DEEP = nested(20_000)
REFUSED = (TOO_MUCH, None)
"""The answers to what is hostile; the second on a busy machine."""


@pytest.fixture
def trial():
    made = Trial(FOLDER / "tokenizer.json", SIZE, [0])
    yield made
    made.close()


def test_a_hostile_grammar_ends_its_copy_alone(trial):
    assert trial(GOOD) == ""
    assert "unclosed group" in trial(WRONG)
    process, _ = trial._running
    assert trial(DEEP) in REFUSED
    assert trial(SLOW) in REFUSED
    assert trial(LLMatcher.grammar_from_regex("b")) == ""
    assert (trial._running[0], process.poll()) == (process, None)
    trial.close()
    assert process.poll() is not None
    assert trial(LLMatcher.grammar_from_regex("c")) == ""


def test_a_quick_grammar_does_not_wait_for_a_slow_one(trial):
    assert trial(GOOD) == ""
    process = psutil.Process(trial._running[0].pid)
    wait_until(lambda: not process.children())
    with ThreadPoolExecutor(2) as pool:
        slow = pool.submit(trial, SLOW)
        wait_until(process.children)
        [copy] = process.children()
        copy.suspend()  # as if others had all processor time
        try:
            quick = pool.submit(trial, LLMatcher.grammar_from_regex("b"))
            assert quick.result(timeout=30) == ""
            wait_until(lambda: copy.nice() == 10)
            sleep(MAX_WAIT)
            assert not slow.done()
        finally:
            copy.resume()
        assert slow.result() is None


def test_threads_try_at_the_same_time(trial):
    grammars = [LLMatcher.grammar_from_regex(f"a{{{n}}}") for n in range(8)] + [WRONG, GOOD] * 4
    with ThreadPoolExecutor(4) as pool:
        errors = list(pool.map(trial, grammars))
    assert errors[:8] == [""] * 8
    assert ["unclosed" in error for error in errors[8:]] == [True, False] * 4


def test_the_grammar_that_runs_is_tried_with_its_line_ends(trial):
    assert "lexer error" in trial(LLMatcher.grammar_from_lark('start: A\rA: "x"'))


def test_what_just_fits_the_stack_is_refused(trial):
    assert trial(nested(2000)) in REFUSED  # it fits a stack of 8 MB, but not one of 4
    assert trial(nested(500)) == ""


def test_an_accident_is_not_held_against_a_grammar(trial, monkeypatch):
    assert trial(GOOD) == ""
    process, _ = trial._running
    process.kill()
    process.wait()
    other = LLMatcher.grammar_from_regex("b")
    assert trial(other) == ""  # in a new process
    trial.close()
    command, third = trial._command, LLMatcher.grammar_from_regex("c")
    monkeypatch.setattr(trial, "_command", [sys.executable, "-c", ""])
    assert trial(third) is None
    wait_until(lambda: trial._running[0].poll() is not None)
    monkeypatch.setattr(trial, "_command", command)
    assert trial(third) == ""


def test_the_server_compiles_no_grammar_to_try_it(monkeypatch):
    made = generator()
    made.texts.grammars.try_first()
    monkeypatch.setattr(grammar, "first_error", None)
    try:
        assert made.texts.grammars.compile(GenerationOptions(regex="a"), frozenset([0]))(0).forced()
        with pytest.raises(OptionError, match="unclosed group"):
            made.texts.grammars.compile(GenerationOptions(regex="("), frozenset([0]))
    finally:
        made.texts.grammars.close()


def test_what_could_not_be_tried_is_not_remembered(monkeypatch):
    made, answers = generator(), iter([None, ""])
    monkeypatch.setattr(made.texts.grammars, "_trial", lambda grammar: next(answers))
    options, ends = GenerationOptions(regex="a"), frozenset([0])
    with pytest.raises(BusyError, match="too busy to try a grammar"):
        made.texts.grammars.compile(options, ends)
    for _ in range(2):
        made.texts.grammars.compile(options, ends)


def test_what_compiles_slowly_begins_no_later_than_a_trial(monkeypatch):
    made, ends = generator().texts.grammars, frozenset([0])
    quick, slow = GenerationOptions(regex="a"), GenerationOptions(regex="b")
    for options, seconds in ((quick, 0.0), (slow, 1.0)):
        clock = count(step=seconds)
        monkeypatch.setattr(grammar, "thread_time", lambda clock=clock: next(clock))
        with pytest.raises(BusyError):
            made.compile(options, ends, until=-inf)
        made.compile(options, ends)(0)
    made.compile(quick, ends, until=-inf)
    made.compile(slow, ends)
    with pytest.raises(BusyError):
        made.compile(slow, ends, until=-inf)


def test_tools_that_take_too_long_are_not_tried_one_by_one(monkeypatch):
    made, tried = generator(), []
    monkeypatch.setattr(
        made.texts.grammars, "_trial", lambda grammar: tried.append(grammar) or TOO_MUCH
    )
    tools = [{"name": f"f{n}", "parameters": {"type": "object"}} for n in range(8)]
    options = GenerationOptions(tools=tools, tool_choice="required")
    form = AnswerFormat(calls=CALL_FORMATS["hermes"])
    with pytest.raises(OptionError, match=r"tools .*more than 2 s") as error:
        made.texts.grammars.compile(options, frozenset([0]), form)
    assert error.value.option == "tools"
    assert len(tried) == 1
