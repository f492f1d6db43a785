"""Structured output with real grammars on scripted models: as in plain decoding, and faster."""

import json
import sys

import pytest
from jsonschema import validate
from pydantic import BaseModel

from ov_specdec.errors import DeadEndError, OptionError
from ov_specdec.options.generation import GenerationOptions
from ov_specdec.sampling.grammar import Grammar
from ov_specdec.text import grammar_process
from tests.support.structured import generate, generator, random_logits

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 6},
        "count": {"type": "integer", "minimum": 0, "maximum": 999},
        "kind": {"enum": ["large", "larger", "small"]},
        "tags": {"type": "array", "items": {"type": "boolean"}, "maxItems": 3},
    },
    "required": ["name", "count", "kind", "tags"],
    "additionalProperties": False,
}

CONSTRAINTS = [
    {"json_schema": SCHEMA},
    {"json_schema": SCHEMA, "json_whitespace": "spaced"},
    {"regex": r"[a-c]{2,5}-\d\d:(yes|no)"},
    {"choices": ["left", "left turn", 'a "quoted" word', "é\n"]},
    {"grammar": 'start: item ("," item)~1..3\nitem: "x=" NUMBER\nNUMBER: /[0-9]{1,3}/'},
]

LENGTH = {"max_new_tokens": 200}
DRAFTERS = [
    {"draft": random_logits(noise=0.5)},
    {"draft": random_logits(noise=0.5), "drafter": "both"},
    {"drafter": "suffix"},
    {"drafter": "prompt-lookup"},
    {"drafter": "none"},
]


@pytest.mark.parametrize("sampling", [{}, {"temperature": 1.0, "seed": 7}], ids=["greedy", "seed"])
@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize("constraint", CONSTRAINTS)
def test_a_text_is_that_of_plain_decoding(constraint, drafter, sampling):
    made, options = generator(**drafter), {**constraint, **LENGTH, **sampling}
    for prompt in ("def area(", 'x=1,x=1 {"name": left'):
        plain = generate(made, prompt, **options, num_assistant_tokens=0)
        assert plain.finish_reason == "stop"
        assert plain.parsed is not None
        assert (plain.stats.forced, plain.stats.drafted) == (0, 0)
        lengths = ["auto", 3] if drafter != {"drafter": "none"} else ["auto"]
        for length in lengths:
            result = generate(made, prompt, **options, num_assistant_tokens=length)
            assert result.token_ids == plain.token_ids
            assert result.parsed == plain.parsed
            passes = result.stats.main_passes
            forced, accepted = result.stats.forced, result.stats.accepted
            # Of the last round, the end may be a draft token.
            assert passes + forced + accepted - len(plain.token_ids) in (0, 1)
        if "json_schema" in constraint:
            validate(plain.parsed, SCHEMA)
            assert result.stats.forced > 20


@pytest.mark.parametrize("length", [0, 3])
def test_a_prompt_is_scored_once_whether_or_not_tokens_are_forced(length):
    made = generator(drafter="suffix")
    options = {"json_schema": SCHEMA, **LENGTH, "prompt_logprobs": 0}
    result = generate(made, "def area(", **options, num_assistant_tokens=length)
    assert (result.stats.forced > 0) == (length > 0)
    assert len(result.prompt_logprobs) == result.stats.prompt_tokens


def test_requests_share_passes_and_memory():
    made_of = random_logits(noise=0.5)
    jobs = [
        ("def area(", GenerationOptions(**constraint, **LENGTH, num_assistant_tokens=length))
        for constraint in CONSTRAINTS
        for length in ("auto", 2, 0)
    ]
    apart = [generator(draft=made_of).batch([job])[0] for job in jobs]
    small, preempted = generator(draft=made_of, num_blocks=53), []
    small.loop.engine.scheduler.on_preemption = lambda: preempted.append(True)
    together = small.batch(jobs)
    assert [each.token_ids for each in together] == [each.token_ids for each in apart]
    assert preempted
    assert all(each.parsed is not None for each in together)


def test_a_text_may_end_anywhere():
    made = generator(draft=random_logits(noise=0.5), drafter="both")
    options = {"json_schema": SCHEMA, **LENGTH}
    whole = generate(made, **options)
    for budget in range(1, len(whole.token_ids) + 1):
        result = generate(made, **{**options, "max_new_tokens": budget})
        assert result.token_ids == whole.token_ids[:budget]
        # The last token ends the text, and is no part of it.
        is_complete = budget >= len(whole.token_ids) - 1
        assert result.parsed == (whole.parsed if is_complete else None)
    for stop in ("unt", "{", '":', "]", "}"):
        plain = generate(made, **options, stop_strings=stop, num_assistant_tokens=0)
        result = generate(made, **options, stop_strings=stop)
        assert (result.text, result.token_ids) == (plain.text, plain.token_ids)
        assert result.text == whole.text.partition(stop)[0]
        assert result.parsed is None
        assert result.stats.generated_tokens == len(result.token_ids)


def test_forced_tokens_fill_the_context_and_no_more():
    made = generator(max_length=40)
    plain = generate(made, regex="a{100}", num_assistant_tokens=0)
    result = generate(made, regex="a{100}")
    assert result.token_ids == plain.token_ids
    assert result.finish_reason == "length" and result.stats.forced > 20


def test_a_dead_end_ends_one_request_alone():
    made, digits = generator(draft=random_logits(noise=0.5)), list(range(16, 26))
    options = {**LENGTH, "regex": "a[0-9]{3}"}
    good = ("x", GenerationOptions(**options))
    for more in ({"suppress_tokens": digits}, {"min_new_tokens": 9}, {"suppress_tokens": [65]}):
        for length in (0, 3):
            bad = ("x", GenerationOptions(**options, **more, num_assistant_tokens=length))
            sequences = [made.begin(made.prompts.encode(*job), job[1]) for job in (good, bad)]
            for sequence in sequences:
                made.loop.add(sequence)
            assert "".join(chunk.text for chunk in made.loop.read(sequences[0]))[0] == "a"
            with pytest.raises(DeadEndError, match="no token may follow"):
                list(made.loop.read(sequences[1]))


AMBIGUOUS = 'start: e\ne: e e | /[a-z]/ | " "'


def test_a_grammar_whose_parser_takes_too_much_ends_its_request(monkeypatch):
    monkeypatch.setattr(grammar_process, "MAX_ITEMS", 500)
    with pytest.raises(DeadEndError, match=r"grammar is too ambiguous .*limit 500") as error:
        generate(generator(), grammar=AMBIGUOUS, **LENGTH)
    assert error.value.option == "grammar"


def test_slow_masks_end_their_request_alone(monkeypatch):
    made, given = generator(draft=random_logits(noise=0.5)), ({"regex": "[a-z]{9}"}, {})
    jobs = [GenerationOptions(**each, max_new_tokens=9) for each in given]
    [*alone] = (made.batch([("x", each)])[0] for each in jobs)
    jobs.append(GenerationOptions(grammar=AMBIGUOUS, max_new_tokens=9))
    *others, slow = sequences = [made.begin(made.prompts.encode("x", each), each) for each in jobs]
    seconds = {slow.request.grammar: 0.6, others[0].request.grammar: 0.001}
    monkeypatch.setattr(Grammar, "take_seconds", lambda own: seconds[own])
    for sequence in sequences:
        made.loop.add(sequence)
    for sequence, result in zip(others, alone, strict=True):
        chunks = list(made.loop.read(sequence))
        assert [token for each in chunks for token in each.token_ids] == result.token_ids
    with pytest.raises(OptionError, match="grammar is too ambiguous: its masks take longer"):
        list(made.loop.read(slow))


def test_log_probabilities_are_of_masked_rows_or_raw_ones():
    made = generator(draft=random_logits(noise=0.5))
    options = {"json_schema": SCHEMA, **LENGTH, "logprobs": 3}
    for mode in ("raw_logprobs", "processed_logprobs"):
        plain = generate(made, **options, logprobs_mode=mode, num_assistant_tokens=0)
        result = generate(made, **options, logprobs_mode=mode)
        assert result.stats.forced > 20
        assert result.logprobs == plain.logprobs
        is_certain = plain.logprobs[0].logprob == 0.0
        assert is_certain == (mode == "processed_logprobs")


@pytest.mark.parametrize(
    "ends", [{"eos_token_id": 5}, {"stop_token_ids": [1]}, {"stop_token_ids": [93]}]
)
def test_the_ends_of_a_request_end_its_text(ends):
    made = generator(draft=random_logits(noise=0.5))
    options = {"json_schema": {"type": "object", "maxProperties": 0}, **LENGTH, **ends}
    plain = generate(made, **options, num_assistant_tokens=0)
    result = generate(made, **options)
    assert result.token_ids == plain.token_ids
    assert result.finish_reason == "stop"
    last = result.token_ids[-1]
    assert last in {*made.texts.eos_token_ids, *ends.get("stop_token_ids", [5])}
    assert (last == 0) <= ("eos_token_id" not in ends)
    # Token 93 is "}", which ends the text before it is complete, as in plain decoding.
    assert result.parsed == ({} if last != 93 else None)


@pytest.mark.parametrize("eos", [0, 5], ids=["the end", "another token"])
@pytest.mark.parametrize(
    ("constraint", "text"),
    [
        ({"choices": "<eos>"}, "<eos>"),
        ({"regex": "ab<eos><eos>c{3}"}, "ab<eos><eos>ccc"),
        ({"json_schema": {"const": "1234567890 <eos>"}}, '"1234567890 <eos>"'),
        ({"json_schema": {"enum": ["<eos>", "<eos>s"]}}, None),
    ],
)
def test_a_literal_that_spells_a_special_token_is_written_with_others(constraint, text, eos):
    made = generator(eos=(eos,))
    plain = generate(made, **constraint, **LENGTH, num_assistant_tokens=0)
    result = generate(made, **constraint, **LENGTH)
    assert result.token_ids == plain.token_ids
    assert plain.finish_reason == "stop"
    assert 0 not in plain.token_ids[:-1]
    assert plain.text == text or (text is None and plain.parsed in ("<eos>", "<eos>s"))
    assert result.stats.forced > 2


def test_a_special_token_of_a_grammar_is_that_token():
    made = generator(eos=(5,))
    options = {"grammar": 'start: "ab" <[0]> "cd<eos>" <[0]> "e"', "skip_special_tokens": False}
    plain = generate(made, **options, **LENGTH, num_assistant_tokens=0)
    result = generate(made, **options, **LENGTH)
    assert result.token_ids == plain.token_ids
    assert plain.token_ids.count(0) == 2
    assert plain.text.startswith("ab<eos>cd<eos><eos>e")
    options["grammar"] = 'start: "ab" <[0]> "cd"'
    grammar = made.texts.grammars.compile(GenerationOptions(**options), {5})(0)
    assert grammar.forced() == [
        *made.texts.tokenizer.encode("ab"),
        0,
        *made.texts.tokenizer.encode("cd"),
    ]


class Person(BaseModel, extra="forbid"):
    name: str
    age: int


def test_the_value_of_a_text_is_of_the_kind_that_was_asked_for():
    made = generator()
    options = {**LENGTH, "temperature": 0.5, "seed": 3}
    person = generate(made, json_schema=Person, logit_bias={2: 9.0}, **options)
    assert isinstance(person.parsed, Person)
    assert person.parsed.model_dump_json() == person.text
    text = json.dumps(Person.model_json_schema())
    same = generate(made, json_schema=text, logit_bias={2: 9.0}, **options)
    assert same.parsed == person.parsed.model_dump()
    assert generate(made, choices="a", **LENGTH).parsed == "a"
    assert generate(made, regex="a?", **LENGTH).parsed in ("a", "")
    assert isinstance(generate(made, json_object=True, max_new_tokens=2).parsed, dict | None)
    assert generate(made, max_new_tokens=2).parsed is None
    assert generate(made, regex="a?", **LENGTH, skip_special_tokens=False).parsed is None


MANY_RULES = "\n".join(
    [
        "start: " + " | ".join(f"a{i}" for i in range(2500)),
        *(f'a{i}: "x" "y{i}"' for i in range(2500)),
    ]
)
"""A grammar that fails at the first token."""


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"regex": "a", "choices": ["a"]}, "is a constraint, and so is"),
        ({"regex": "a", "ignore_eos": True}, "contradicts ignore_eos=True"),
        ({"json_whitespace": "any"}, "has no effect without json_schema"),
        ({"json_schema": {"not": {}}}, '"not"'),
        ({"json_schema": {"x-guidance": {}}}, "'x-guidance'"),
        ({"json_schema": "{"}, "is not JSON"),
        ({"json_schema": {"enum": {1, 2}}}, "is not JSON"),
        ({"regex": "(?=a)b"}, "look-around"),
        ({"grammar": 'start: "a" b'}, 'unknown name: "b"'),
        ({"grammar": "start: a\na[max_tokens=3]: /.*/"}, "max_tokens="),
        ({"grammar": 'start: a\na[capture="x", stop="y"]: /.*/'}, "stop="),
        ({"grammar": MANY_RULES}, "Current row has"),
    ],
)
def test_what_cannot_be_constrained_is_refused_before_anything_runs(options, words):
    made = generator()
    with pytest.raises(OptionError) as error:
        generate(made, **options)
    assert words in str(error.value)
    assert made.sequences.main.passes == []


@pytest.mark.parametrize("options", [{"regex": "a"}, {"tools": [{"name": "f"}]}])
def test_without_llguidance_the_extra_is_named(options, monkeypatch):
    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(OptionError, match=r"needs llguidance .*\[structured\]"):
        generator().texts.grammars.compile(GenerationOptions(**options), frozenset([0]))


def test_a_text_needs_an_end():
    with pytest.raises(OptionError, match="needs a token that ends the text"):
        generate(generator(eos=()), regex="a")


@pytest.mark.parametrize("drafter", ["suffix", "prompt-lookup"])
def test_matches_are_drafted_as_far_as_they_fit(drafter):
    """And what is rejected of them fits as well: only the model has refused it."""
    made, options = generator(drafter=drafter), {"json_schema": SCHEMA, **LENGTH}
    prompt = '{"name":"x{y","count":"many","kind":"larger","tags":[true,{}]} ' * 3
    grammar, num_rejected = made.texts.grammars.compile(GenerationOptions(**options), {0})(0), 0
    result = generate(made, prompt, **options, num_assistant_tokens=6)
    for chunk in result.chunks:
        tokens = [*grammar._consumed]
        assert grammar.num_fitting(tokens, chunk.rejected_ids) == len(chunk.rejected_ids)
        grammar.follow(chunk.token_ids)
        num_rejected += len(chunk.rejected_ids)
    assert result.stats.accepted > 0 < num_rejected
