"""The processor alone: masks after detours, errors, and the law of sampled texts."""

import json
from copy import copy
from functools import partial
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from ov_specdec.drafters.model import DraftCache, ModelDrafter
from ov_specdec.drafters.suffix import SuffixDrafter
from ov_specdec.errors import DeadEndError, OptionError
from ov_specdec.options.generation import MAX_REQUESTED_LENGTH, GenerationOptions
from ov_specdec.planning.policies import ConstantLength
from ov_specdec.sampling.grammar import Grammar
from ov_specdec.sampling.samplers import Sampler
from ov_specdec.sampling.warpers import LogitsWarper
from ov_specdec.text.tokenizer import load_tokenizer
from tests.support.enumeration import enumerate_outcomes
from tests.support.fakes import ScriptedModel
from tests.support.running import rounds, sequence
from tests.support.structured import MODEL, SIZE, TOKENIZER, generator, random_logits

SCHEMA = {"type": "array", "items": {"enum": ["left", "let", 5, True]}, "maxItems": 4}
PROMPT = [5, 6, 7]
MODELS = Path(__file__).parents[3] / "models"
ROW = np.zeros(SIZE, np.float32)


def compiled(ends=(0,), tokenizer=TOKENIZER, **options):
    """Makes processors of a constraint."""
    grammars = generator(tokenizer=tokenizer).texts.grammars
    make = grammars.compile(GenerationOptions(**options), frozenset(ends))
    return partial(make, len(PROMPT))


ID = 2**53 + 1
"""A number that no double is."""


@pytest.mark.parametrize(
    "schema",
    [
        {"const": 10**400},
        {"const": "\ud800"},
        '{"maximum": 1e400}',
        '{"items":' * 200 + "{}" + "}" * 200,
        {"const": ID},
        {"const": -(2**63)},
        {"type": "integer", "enum": [1e19]},
        {"items": {"minimum": ID, "maximum": ID}},
        {"type": "integer", "exclusiveMaximum": -(2**53)},
        {"type": "integer", "maximum": 2**64 - 1},
        {
            "properties": {"title": {"$ref": "#/$defs/a"}},
            "$defs": {"a": {"enum": ["x", {"b": [ID]}]}},
        },
        {"anyOf": [{"type": "number", "maximum": 2**63 - 1}, {"type": "null"}]},
    ],
)
def test_a_schema_that_is_read_otherwise_than_written_is_refused_by_name(schema):
    with pytest.raises(OptionError, match=r"cannot be kept .*: give numbers below") as error:
        compiled(json_schema=schema)
    assert error.value.option == "json_schema"


def test_a_schema_within_a_grammar_is_refused_for_its_numbers_too():
    deep = "start: %json " + '{"items":' * 100_000
    for grammar in (
        f'start: %json {{"const": {ID}}}',
        'start: "a" b\nb: %json {"maximum": 1e19}',
        deep,
    ):
        with pytest.raises(OptionError, match=r"grammar cannot be kept .*: give numbers below"):
            compiled(grammar=grammar)
    assert compiled(grammar='start: %json {"const": 7}')


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"const": 2**53 - 1}, 2**53 - 1, 2**53 - 2),
        ({"type": "integer", "minimum": 1 - 2**53}, 1 - 2**53, -(2**53)),
        ({"type": "integer", "minimum": 0, "maximum": 2**63 - 1}, 2**63 - 1, 2**63),
        ({"type": ["integer", "null"], "maximum": 2**63 - 1}, 2**63 - 1, 2**63),
        ({"type": "integer", "default": ID, "examples": [{"const": ID}]}, ID, None),
        (
            {"properties": {"const": {"type": "integer"}}, "x-const": ID},
            {"const": ID},
            {"const": 0.5},
        ),
    ],
)
def test_other_numbers_are_written_as_they_are(schema, good, bad):
    for value, is_good in ((good, True), (bad, False)):
        grammar, text = compiled(json_schema=schema)(), json.dumps(value, separators=(",", ":"))
        ids = TOKENIZER.encode(text)
        assert (grammar.num_fitting(PROMPT, [*ids, 0]) > len(ids)) is is_good


def fitting(grammar, tokens):
    return np.flatnonzero(np.isfinite(grammar(tokens, ROW))).tolist()


def test_detours_leave_no_trace():
    make, numbers = compiled(json_schema=SCHEMA), np.random.default_rng(0)
    grammar, text, masks = make(), list(PROMPT), 0
    while True:
        fresh = make()
        fresh.follow(text[len(PROMPT) :])
        allowed = fitting(fresh, text)
        assert fitting(grammar, text) == allowed
        assert grammar.forced() == fresh.forced()
        assert allowed == fresh.forced()[:1] or not fresh.forced()
        for _ in range(3):  # drafts that are dropped
            draft = list(text)
            while len(draft) < len(text) + 6 and draft[-1] != 0:
                draft.append(int(numbers.choice(fitting(grammar, draft))))
        if allowed == [0]:
            break
        new = [token for token in draft[len(text) :] if token][: numbers.integers(4)]
        new = new or [next(token for token in allowed if token)]
        grammar.follow(new)
        text += new
        masks += 1
    assert masks > 5
    assert grammar.accepts()


def test_a_rejected_draft_of_one_form_leaves_the_masks_of_another():
    """llguidance 1.9 rolls back, and keeps the mask of the first form for the second."""
    tokenizer = load_tokenizer(MODELS / "main")  # it has tokens such as `",` and `"}`
    forms = [["pattern", "path"], ["command"]]
    schemas = [
        {
            "type": "object",
            "properties": {name: {"type": "string"} for name in names},
            "required": names,
            "additionalProperties": False,
        }
        for names in forms
    ]
    make = compiled(tokenizer=tokenizer, json_schema={"anyOf": schemas})
    begin, row = tokenizer.encode('{"'), np.zeros(tokenizer.vocab_size, np.float32)
    rejected, other = (tokenizer.encode(f'{names[0]}":"') for names in reversed(forms))
    grammar, fresh = make(), make()
    grammar.follow(begin)
    assert grammar.num_fitting([*PROMPT, *begin], rejected) == len(rejected)
    assert np.isfinite(grammar([*PROMPT, *begin, *rejected], row)).any()
    grammar.follow(other)
    fresh.follow([*begin, *other])
    text = [*PROMPT, *begin, *other]
    assert np.array_equal(grammar(text, row), fresh(text, row))


def test_drafts_end_where_they_do_not_fit():
    grammar = compiled(regex="ab[0-9]{2}")()
    ids = TOKENIZER.encode("ab123")
    assert grammar.num_fitting(PROMPT, ids) == 4
    assert grammar.num_fitting(PROMPT, [*ids[:4], 0, 0]) == 5
    assert grammar.num_fitting(PROMPT, [*ids[:2], 0]) == 2
    assert grammar.num_fitting(PROMPT, []) == 0
    assert grammar.forced() == ids[:2]


def test_a_pass_verifies_few_of_many_forced_tokens():
    grammar = compiled(regex="a{100}")()
    assert grammar.forced() == [65] * MAX_REQUESTED_LENGTH


def test_a_first_token_may_be_no_part_of_the_text():
    grammar = compiled(regex="ab")(1)
    assert len(fitting(grammar, PROMPT)) == SIZE
    assert grammar.forced() == []
    grammar.follow([9])
    assert fitting(grammar, [*PROMPT, 9]) == [65]
    grammar.follow([65, 66, 0])
    assert grammar.accepts()


class Flaky:
    """A matcher of any text that fails after so many tokens of all its copies. See `Matcher`."""

    def __init__(self, lives):
        self.lives, self.text = [lives], []

    def consume_tokens(self, tokens):
        self.lives[0] -= len(tokens)
        self.text += tokens
        return not self.is_error()

    def deep_copy(self):
        copied = copy(self)
        copied.text = [*self.text]
        return copied

    def compute_bitmask(self):
        mask = np.zeros(SIZE + 6, np.uint8)
        mask[sum(self.text) % SIZE] = 1
        return np.packbits(mask, bitorder="little").tobytes()

    def compute_ff_tokens(self):
        return [sum(self.text) % SIZE]

    def is_accepting(self):
        return not self.is_error()

    def is_error(self):
        return self.lives[0] < 0

    def get_error(self):
        return "it is worn out" if self.is_error() else ""


NOTHING_SPECIAL = SimpleNamespace(eos_tokens=[], is_special_token=lambda token: False)


def test_a_fresh_matcher_takes_over_after_an_error():
    made = []

    def make():
        made.append(Flaky(6))
        return made[-1]

    grammar, text = Grammar(make, NOTHING_SPECIAL, frozenset([0]), 0), []
    for token in (1, 2, 3, 4, 5):
        for other in (7, 8, token):
            assert fitting(grammar, [*text, other]) == [0, (sum(text) + other) % SIZE]
        grammar.follow([token])
        text.append(token)
        assert grammar.forced() == [sum(text)]
    assert len(made) > 2
    assert fitting(grammar, [*text, 9]) == [0, sum(text) + 9]
    with pytest.raises(DeadEndError, match=r"grammar is too ambiguous .*it is worn out"):
        grammar([*text, 9, 9], ROW)
    assert grammar.num_fitting(text, [15, 24, 9]) < 3
    assert grammar.forced() == [sum(text)]
    grammar.follow([9])
    with pytest.raises(DeadEndError):
        grammar.follow([9])


@pytest.mark.parametrize("kind", ["none", "model", "suffix"])
@pytest.mark.parametrize(
    "constraint", [{"regex": "x?[ab]{1,2}(zz|y)"}, {"choices": ["aa", "ab", "aab"]}]
)
def test_sampled_texts_have_the_law_of_plain_decoding(kind, constraint):
    make, ends = compiled(**constraint), frozenset([0])

    def law(kind, length):
        def run(random):
            sampler = Sampler((make(),), ends, LogitsWarper(temperature=2.0), random)
            drafter = None
            if kind == "model":
                other = ScriptedModel(random_logits(noise=1.0), vocab_size=SIZE)
                drafter = ModelDrafter(DraftCache(other), sampler)
            if kind == "suffix":
                drafter = SuffixDrafter([TOKENIZER.encode("abzzaabyaaab")], tokens=PROMPT)
            main = ScriptedModel(MODEL, vocab_size=SIZE)
            options = GenerationOptions(num_assistant_tokens=length)
            text = sequence(
                main, PROMPT, 20, drafter, ConstantLength(length), sampler=sampler, options=options
            )
            list(rounds(text))
            return tuple(text.tokens[len(PROMPT) :])

        return enumerate_outcomes(run)

    expected, actual = law("none", 0), law(kind, 2)
    assert len(expected) > 2
    assert expected.keys() == actual.keys()
    assert all(abs(actual[text] - prob) < 1e-9 for text, prob in expected.items())


def test_the_length_of_a_drawn_draft_depends_on_no_token_that_does_not_fit():
    """Cut before each c, a draft of its own law would give more texts with a than with b."""
    make = compiled(regex="[ab]{3}")
    a, b, c = 65, 66, 67

    def either(*tokens):
        row = np.full(SIZE, -np.inf, np.float32)
        row[[*tokens]] = 0.0
        return ScriptedModel(lambda _: row, vocab_size=SIZE)

    def run(random):
        own, sampler = (Sampler(each, rng=random) for each in ((), (make(),)))
        drafter = ModelDrafter(DraftCache(either(a, c)), own)
        end = len(PROMPT) + 3
        text = sequence(either(a, b), PROMPT, end, drafter, ConstantLength(2), sampler=sampler)
        list(rounds(text))
        return tuple(text.tokens[len(PROMPT) :])

    law = enumerate_outcomes(run)
    assert law == pytest.approx(dict.fromkeys(product((a, b), repeat=3), 1 / 8), abs=1e-9)
