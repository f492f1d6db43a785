"""The process that tries grammars: what ends it is refused, and the next one is tried."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from llguidance import LLMatcher

from ov_specdec.text.grammar import Trial
from ov_specdec.text.grammar_process import TOO_MUCH
from tests.support.structured import FOLDER, SIZE

GOOD = LLMatcher.grammar_from_regex("a{3}")
WRONG = LLMatcher.grammar_from_regex("(")
SLOW = LLMatcher.grammar_from_json_schema({"type": "integer", "multipleOf": 999_983})
RULES = "\n".join(f"r{i}: r{i + 1}" for i in range(20_000))
DEEP = LLMatcher.grammar_from_lark(f'start: r0\n{RULES}\nr20000: "a"')


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
