"""The process that tries grammars: what ends it is refused, and the next one is tried."""

import os
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from llguidance import LLMatcher

from ov_specdec.errors import OptionError
from ov_specdec.options.generation import GenerationOptions
from ov_specdec.text import grammar
from ov_specdec.text.grammar import Trial
from ov_specdec.text.grammar_process import TOO_MUCH
from tests.support.structured import FOLDER, SIZE, generator

GOOD = LLMatcher.grammar_from_regex("a{3}")
WRONG = LLMatcher.grammar_from_regex("(")
SLOW = LLMatcher.grammar_from_json_schema({"type": "integer", "multipleOf": 999_983})


def nested(depth):
    """A grammar of rules within rules."""
    rules = "\n".join(f"r{i}: r{i + 1}" for i in range(depth))
    return LLMatcher.grammar_from_lark(f'start: r0\n{rules}\nr{depth}: "a"')


DEEP = nested(20_000)


@pytest.fixture
def trial():
    made = Trial(FOLDER / "tokenizer.json", SIZE, [0])
    yield made
    made.close()


def test_a_hostile_grammar_ends_the_process_alone(trial):
    assert trial(GOOD) == ""
    assert "unclosed group" in trial(WRONG)
    first = trial._process
    assert trial(DEEP) == TOO_MUCH
    assert trial(SLOW) == TOO_MUCH
    assert trial(LLMatcher.grammar_from_regex("b")) == ""
    assert (trial._process, first.poll()) == (first, None)
    trial.close()
    assert trial(DEEP) == TOO_MUCH  # it is remembered, and needs no process
    assert trial._process is None
    assert trial(LLMatcher.grammar_from_regex("c")) == ""


def test_threads_take_turns(trial):
    grammars = [LLMatcher.grammar_from_regex(f"a{{{n}}}") for n in range(8)] + [WRONG, GOOD] * 4
    with ThreadPoolExecutor(4) as pool:
        errors = list(pool.map(trial, grammars))
    assert errors[:8] == [""] * 8
    assert ["unclosed" in error for error in errors[8:]] == [True, False] * 4


def test_what_just_fits_the_stack_is_refused(trial):
    assert trial(nested(2000)) == TOO_MUCH  # it fits a stack of 8 MB, but not one of 4
    assert trial(nested(500)) == ""


def test_an_accident_is_not_held_against_a_grammar(trial, monkeypatch):
    assert trial(GOOD) == ""
    trial._process.kill()
    trial._process.wait()
    other = LLMatcher.grammar_from_regex("b")
    assert trial(other) == ""  # in a new process
    trial.close()
    command, third = trial._command, LLMatcher.grammar_from_regex("c")
    monkeypatch.setattr(trial, "_command", [sys.executable, "-c", "print('half a line', end='')"])
    assert trial(third) == "the process that tries it has ended twice"
    monkeypatch.setattr(trial, "_command", command)
    assert trial(third) == ""


def test_a_system_that_cannot_fork_is_the_reason(trial, monkeypatch):
    monkeypatch.delattr(os, "fork")
    assert "need os.fork, which Windows does not have" in trial(GOOD)
    assert trial._process is None


def test_the_server_compiles_no_grammar_to_try_it(monkeypatch):
    made = generator()
    made.grammars.try_first()
    monkeypatch.setattr(grammar, "first_error", None)
    try:
        assert made.grammars.compile(GenerationOptions(regex="a"), frozenset([0]))(0).forced()
        with pytest.raises(OptionError, match="unclosed group"):
            made.grammars.compile(GenerationOptions(regex="("), frozenset([0]))
    finally:
        made.grammars.close()
