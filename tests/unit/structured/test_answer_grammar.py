"""What fits the grammar of an answer is read back as calls that fit their schemas."""

import json
from dataclasses import replace
from itertools import product
from operator import attrgetter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import validate

from ov_specdec.errors import OptionError
from ov_specdec.options.generation import GenerationOptions
from ov_specdec.options.structured import parameters_of
from ov_specdec.results.parts import CallBegin, CallEnd, Text, calls_of
from ov_specdec.text.answer_format import CALL_FORMATS
from ov_specdec.text.grammar_process import first_error
from tests.support import answers
from tests.support.answers import LETTERS, TOKENS, draw, fits, grammar_of, read
from tests.support.tools import STOP, function

SAVE = function(
    "save",
    {
        "path": {"type": "string", "maxLength": 12},
        "mode": {"enum": ["a", "b\n</parameter>", "<tool"]},
        "deep": {"type": "boolean"},
        "lines": {"type": "array", "items": {"type": "integer"}, "maxItems": 3},
        "note": {"anyOf": [{"type": "string", "maxLength": 4}, {"type": "null"}]},
    },
    required=["path", "lines"],
)
WORDS = {"tokens": TOKENS, "letters": LETTERS}


@pytest.fixture(params=WORDS)
def words(request):
    return WORDS[request.param]


is_whole_call = attrgetter("is_whole")


def check(calls, tools):
    """Whole calls fit the schemas of their tools."""
    schemas = {tool["function"]["name"]: tool["function"]["parameters"] for tool in tools}
    for call in filter(is_whole_call, calls):
        validate(json.loads(call.arguments), schemas[call.name])


TYPES = st.sampled_from(["string", "integer", "number", "boolean", "null"])
LEAVES = st.one_of(
    TYPES.map(lambda name: {"type": name}),
    st.lists(TYPES, min_size=1, max_size=3, unique=True).map(lambda names: {"type": names}),
    st.lists(st.text("ab<>/\n\u00e9", max_size=4), min_size=1, max_size=3).map(
        lambda v: {"enum": v}
    ),
    st.integers(0, 3).map(lambda n: {"type": "string", "minLength": n, "maxLength": n + 4}),
    st.just({}),
    st.just({"const": "</parameter>"}),
    st.just({"anyOf": [{"type": "null"}, {"enum": ["x", "y"]}, {"type": "integer"}]}),
    st.just({"$ref": "#/$defs/leaf"}),
)
SCHEMAS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        inner.map(lambda each: {"type": "array", "items": each, "maxItems": 2}),
        st.dictionaries(st.sampled_from("abc"), inner, max_size=2).map(
            lambda each: {"type": "object", "properties": each, "additionalProperties": False}
        ),
    ),
    max_leaves=3,
)
KEYS = st.sampled_from(["path", "line_1", "x"])


@settings(max_examples=80)
@given(
    st.sampled_from([*WORDS]),
    st.sampled_from([*CALL_FORMATS]),
    st.dictionaries(KEYS, SCHEMAS, max_size=3),
    st.sets(KEYS),
    st.integers(0, 99),
)
def test_calls_fit_their_schemas(words, name, properties, required, seed):
    words = WORDS[words]
    defs = {"leaf": {"enum": [1, "one", None]}}
    tools = [
        function("f", properties, required=sorted(required & {*properties}), **{"$defs": defs}),
        STOP,
    ]
    form = words.form(name)
    options = GenerationOptions(tools=tools, tool_choice="required")
    ids, is_whole = draw(words, grammar_of(words, form, options), seed)
    parts = read(words, form, tools, ids)
    num_whole = sum(isinstance(part, CallEnd) for part in parts)
    check(calls_of(parts)[:num_whole], tools)
    assert num_whole or not is_whole
    assert not is_whole or not any(isinstance(part, Text) for part in parts)


@pytest.mark.parametrize(("name", "thinks"), [*product(CALL_FORMATS, (False, True))])
def test_choices_hold(words, name, thinks):
    form, tools = words.form(name, thinks=thinks), [SAVE, STOP]
    named = {"type": "function", "function": {"name": "stop"}}
    for choice, is_parallel, seed in product(
        ("auto", "none", "required", named), (True, False), range(2)
    ):
        budget = (
            {"thinking_token_budget": 4} if thinks and words is TOKENS and name != "mistral" else {}
        )
        options = GenerationOptions(
            tools=tools, tool_choice=choice, parallel_tool_calls=is_parallel, **budget
        )
        for is_reasoning in (False, None, True) if budget else (False, None):
            grammar = grammar_of(words, form, options, is_reasoning=is_reasoning)
            ids, is_whole = draw(words, grammar, seed, 150)
            parts = read(words, form, tools, ids, is_reasoning=is_reasoning)
            calls = calls_of(parts)
            check(calls, tools)
            assert len(calls) <= 1 or (is_parallel and choice != named)
            assert {call.name for call in calls} <= (
                {"stop"} if choice == named else {"save", "stop"}
            )
            if choice == "none":
                assert not any(isinstance(part, CallBegin) for part in parts)
            if choice in ("required", named):
                assert not is_whole or not any(isinstance(part, Text) for part in parts)
                assert calls or not is_whole


def spelled(name, key=None, value=None):
    """A call of `f` in a format."""
    if name == "hermes":
        arguments = json.dumps({} if key is None else {key: value})
        return f'<tool_call>\n{{"name": "f", "arguments": {arguments}}}\n</tool_call>'
    text = value if isinstance(value, str) else json.dumps(value)
    argument = "" if key is None else f"<parameter={key}>\n{text}\n</parameter>\n"
    return f"<tool_call>\n<function=f>\n{argument}</function>\n</tool_call>"


def is_written(words, name, tool, text, choice="required"):
    """Whether an answer may be this."""
    options = GenerationOptions(tools=[tool], tool_choice=choice)
    ids = words.encode(text)
    return fits(words, grammar_of(words, words.form(name), options), ids) == (len(ids), True)


FORMS = ["hermes", "qwen3_coder"]


@pytest.mark.parametrize("name", FORMS)
def test_a_named_tool_is_called_once(name, words):
    tool, one = function("f"), spelled(name)
    for choice, num_calls in product(("auto", "required", "f"), (1, 2)):
        is_fitting = num_calls == 1 or choice != "f"
        assert is_written(words, name, tool, "\n".join([one] * num_calls), choice) is is_fitting


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize(
    ("parameters", "is_free"),
    [
        ({}, False),
        ({"parameters": None}, False),
        ({"parameters": {}}, False),
        ({"parameters": {"type": "object", "title": "No arguments", "x-order": 1}}, False),
        ({"parameters": {"type": "object", "properties": {}, "required": []}}, False),
        ({"parameters": {"type": "object", "properties": {}, "additionalProperties": True}}, True),
        ({"parameters": {"additionalProperties": {"type": "integer"}}}, True),
        ({"parameters": {"type": "object", "patternProperties": {"^a$": {}}}}, True),
        ({"parameters": {"$ref": "#/$defs/a", "$defs": {"a": {"type": "object"}}}}, True),
    ],
)
def test_a_tool_without_parameters_takes_an_empty_object(name, words, parameters, is_free):
    tool = {"type": "function", "function": {"name": "f", **parameters}}
    assert is_written(words, name, tool, spelled(name))
    assert is_written(words, name, tool, spelled(name, "a", 1)) is is_free


def test_the_text_of_auto_is_free(words):
    form = words.form("hermes")
    free = grammar_of(words, form, GenerationOptions(tools=[STOP]))
    none = grammar_of(words, form, GenerationOptions(tools=[STOP], tool_choice="none"))
    call = '<tool_call>\n{"name": "stop", "arguments": {}}\n</tool_call>'
    for text in ("Hello <tool_", "{", "\n\n", 'a {"name": "stop"} </tool_call>'):
        ids = words.encode(text)
        assert fits(words, free, ids) == fits(words, none, ids) == (len(ids), True)
        ids = words.encode(text + call)
        assert fits(words, free, ids) == (len(ids), True)
        assert fits(words, free, [*ids, 40])[0] == len(ids)
        marker = len(words.encode(text + "<tool_call>"))
        assert fits(words, none, ids)[0] < marker
    ids = words.encode("<tool_call>\n{")
    assert fits(words, free, ids) == (len(ids), False)


def test_a_marker_that_is_spelled_is_text_where_markers_are_tokens():
    form, spelled = TOKENS.form("hermes"), [t for c in "<tool_call>" for t in TOKENS.encode(c)]
    for choice in ("auto", "none"):
        grammar = grammar_of(TOKENS, form, GenerationOptions(tools=[STOP], tool_choice=choice))
        assert fits(TOKENS, grammar, spelled) == (len(spelled), True)


@pytest.mark.parametrize("budget", [0, 1, 7, 32_000])
def test_a_budget_of_reasoning_is_exact(budget):
    form = TOKENS.form("hermes", thinks=True)
    options = GenerationOptions(tools=[STOP], thinking_token_budget=budget)
    begin, end = (TOKENS.markers[name] for name in ("<think>", "</think>"))
    words = [TOKENS.encode("a")[0]] * min(budget, 50)
    for is_reasoning, first in ((True, []), (False, [begin])):
        grammar = grammar_of(TOKENS, form, options, is_reasoning=is_reasoning)
        ids = [*first, *words]
        assert fits(TOKENS, grammar, ids) == (len(ids), False)
        assert fits(TOKENS, grammar, [*ids, end]) == (len(ids) + 1, True)
        if budget == len(words):
            assert fits(TOKENS, grammar, [*ids, words[0] if words else 40])[0] == len(ids)
        assert fits(TOKENS, grammar, [*ids, end, begin])[0] == len(ids) + 1
    closed = grammar_of(TOKENS, form, options, is_reasoning=None)
    assert fits(TOKENS, closed, [begin])[0] == 0


def test_a_budget_needs_a_token_that_ends_reasoning():
    options = GenerationOptions(tools=[STOP], thinking_token_budget=3)
    with pytest.raises(OptionError, match="marks the end of reasoning by one token") as error:
        grammar_of(LETTERS, LETTERS.form("hermes", thinks=True), options)
    assert error.value.option == "thinking_token_budget"
    with pytest.raises(OptionError, match="marks the end of reasoning by one token"):
        grammar_of(LETTERS, LETTERS.form("hermes"), options)


def test_a_constraint_holds_for_the_text(words):
    form = words.form("hermes", thinks=True)
    constraints = {
        "start: /[0-9]+/": ("12", "a"),
        '{"grammars": [{"json_schema": {"type": "integer"}}]}': ("12", '"a"'),
    }
    call = '<tool_call>\n{"name": "stop", "arguments": {}}\n</tool_call>'
    for text, (good, bad) in constraints.items():
        for thought in ("", "<think>hm</think>"):
            grammar = grammar_of(words, form, GenerationOptions(tools=[STOP]), text=text)
            gap = "\n\n" if thought else ""
            for answer in (good, gap + call):
                ids = words.encode(thought + answer)
                assert fits(words, grammar, ids) == (len(ids), True)
            ids = words.encode(thought + bad)
            assert not fits(words, grammar, ids)[1]
        none = GenerationOptions(tools=[STOP], tool_choice="none")
        ids = words.encode(call)
        num, is_end = fits(words, grammar_of(words, form, none, text=text), ids)
        assert num < 2
        assert not is_end


@pytest.mark.parametrize(
    "node", [{"type": "string", "minLength": "x"}, {"type": "object", "properties": 5}]
)
def test_one_tool_without_a_schema_loosens_no_other(node, caplog):
    form, tools = TOKENS.form("hermes"), [function("good", {"b": {"type": "integer"}})]
    options = GenerationOptions(
        tools=[*tools, function("bad", {"a": node})], tool_choice="required"
    )
    grammar = grammar_of(TOKENS, form, options)
    assert "the tool 'bad'" in caplog.text
    assert "'good'" not in caplog.text
    for seed in range(5):
        calls = calls_of(read(TOKENS, form, tools, draw(TOKENS, grammar, seed)[0]))
        assert all(isinstance(json.loads(c.arguments), dict) for c in calls if c.is_whole)
        check([call for call in calls if call.name == "good"], tools)


SMALL = {"type": "integer", "maximum": 3}
SCHEMAS_IN_PART = {
    "uniqueItems": ({"type": "array", "items": SMALL, "uniqueItems": True}, [2, 2], [4]),
    "keys": (
        {"type": "object", "propertyNames": {"maxLength": 1}, "additionalProperties": SMALL},
        {"a": 2},
        {"a": 4},
    ),
    "oneOf": ({"oneOf": [SMALL, {"type": "integer", "maximum": 2}]}, 2, 4),
    "oneOf and anyOf": ({"oneOf": [SMALL, {"type": "null"}, SMALL], "anyOf": [SMALL, {}]}, 2, 4),
    "not": ({**SMALL, "not": {"const": 3}}, 2, 4),
    "look-around": ({"type": "string", "maxLength": 2, "pattern": "(?=a)b"}, "ac", "abc"),
    "format": ({"type": "string", "maxLength": 2, "format": "iri"}, "ac", "abc"),
    "id": ({"type": "integer", "enum": [2**60 + 1]}, 7, "x"),
    "remote": ({"$ref": "http://a/b", "type": "integer"}, 7, "x"),
    "path": ({"$ref": "#/nowhere", "type": "integer"}, 7, "x"),
}


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("kind", SCHEMAS_IN_PART)
def test_only_the_part_that_cannot_be_kept_is_loosened(name, kind, caplog):
    schema, good, bad = SCHEMAS_IN_PART[kind]
    deep = {"type": "object", "properties": {"c": schema}, "additionalProperties": False}
    other = {"enum": ["x", 1]}
    for properties, key, wrap in (
        ({"a": schema, "b": other}, "a", lambda value: value),
        ({"a": {"$ref": "#/$defs/deep"}, "b": other}, "a", lambda value: {"c": value}),
        ({"a": {"type": "array", "items": deep}}, "a", lambda value: [{"c": value}]),
    ):
        defs = {"required": [], "$defs": {"deep": deep}}
        tool = function("f", properties, **defs)
        with pytest.raises(
            OptionError, match=r"'f', of whose schema a part cannot be kept \(\S.*\): change it"
        ) as error:
            is_written(TOKENS, name, function("f", properties, strict=True, **defs), "")
        assert error.value.option == "tools"
        assert is_written(TOKENS, name, tool, spelled(name, key, wrap(good)))
        assert not is_written(TOKENS, name, tool, spelled(name, key, wrap(bad)))
        assert is_written(TOKENS, name, tool, spelled(name, "b", "x")) is ("b" in properties)
        assert not is_written(TOKENS, name, tool, spelled(name, "b", "y"))
    assert "the tool 'f'" in caplog.text


def test_one_part_among_many_is_found_in_few_trials(monkeypatch):
    tried, properties = [], {f"a{n}": {"enum": [n]} for n in range(200)}
    tool = function("f", {**properties, "text": {"type": "string", "pattern": "(?=a)b"}})
    monkeypatch.setattr(answers, "first_error", lambda *args: tried.append(0) or first_error(*args))
    options = GenerationOptions(tools=[tool], tool_choice="required")
    grammar = grammar_of(TOKENS, TOKENS.form("hermes"), options)
    assert "enum" in grammar
    assert len(tried) < 60


@pytest.mark.parametrize("name", FORMS)
def test_bounds_that_nothing_fits_are_left_out(name):
    empty = {"type": "integer", "minimum": 5, "maximum": 3}
    tool = function("f", {"a": {"type": "object", "properties": {"c": empty}, "required": ["c"]}})
    assert is_written(TOKENS, name, tool, spelled(name, "a", {"c": 7}))
    assert not is_written(TOKENS, name, tool, spelled(name, "a", {"c": "x"}))


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize(
    "silent",
    [
        {"propertyNames": {"type": "string"}, "additionalProperties": SMALL},
        {"minProperties": 0, "deprecated": True, "$comment": "c", "x-order": 1},
        {"dependentRequired": {}, "unevaluatedProperties": True},
    ],
)
def test_keywords_that_say_nothing_loosen_nothing(name, silent, words, caplog):
    node = {"type": "object", "properties": {"c": SMALL}, "additionalProperties": False, **silent}
    tool = function("f", {"a": node}, strict=True, **silent)
    for value, is_fitting in ((3, True), (4, False)):
        assert is_written(words, name, tool, spelled(name, "a", {"c": value})) is is_fitting
    assert not caplog.text


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": "string", "maxLength": 3, "anyOf": [{"minLength": 1}]}, "abc", "abcd"),
        ({"$ref": "#/$defs/text", "maxLength": 3}, "abc", "abcd"),
        ({"allOf": [{"$ref": "#/$defs/mode"}], "default": "p"}, "q", "r"),
        ({"allOf": [{"type": "integer"}]}, "3", "x"),
        ({"const": True}, "true", "false"),
    ],
)
def test_what_a_schema_says_beside_its_cases_holds(words, schema, good, bad):
    defs = {"text": {"type": "string"}, "mode": {"enum": ["p", "q"]}}
    tool = function("f", {"a": schema}, strict=True, **{"$defs": defs})
    options = GenerationOptions(tools=[tool], tool_choice="required")
    grammar = grammar_of(words, words.form("qwen3_coder"), options)
    for value, expected in ((good, True), (bad, False)):
        text = f"<function=f>\n<parameter=a>\n{value}\n</parameter>\n</function>"
        ids = words.encode(f"<tool_call>\n{text}\n</tool_call>")
        assert (fits(words, grammar, ids) == (len(ids), True)) is expected


def test_arguments_without_names_have_their_schema(words):
    tools = [function("f", strict=True, additionalProperties={"type": "integer"})]
    form, options = words.form("qwen3_coder"), GenerationOptions(tools=tools, tool_choice="f")
    grammar = grammar_of(words, form, options)
    calls = [calls_of(read(words, form, tools, draw(words, grammar, n)[0])) for n in range(9)]
    check([call for each in calls for call in each], tools)
    assert any(call.arguments != "{}" for each in calls for call in each)


def test_a_reference_that_is_lost_among_single_arguments_is_refused(words):
    tool = function("f", {"a": {"type": "object", "not": {"$ref": "#"}}}, strict=True)
    node = function("f", {"a": {"$ref": "#"}}, strict=True, required=[])
    for each in (tool, node):
        with pytest.raises(OptionError, match="it has '#'"):
            grammar_of(words, words.form("qwen3_coder"), GenerationOptions(tools=[each]))
    grammar_of(words, words.form("hermes"), GenerationOptions(tools=[node]))


@pytest.mark.parametrize("name", FORMS)
def test_alternatives_that_multiply_are_refused(name):
    schema = {"type": "integer"}
    for _ in range(20):
        cases = [{"minimum": 1}, {"maximum": 9}]
        schema = {"anyOf": cases, "oneOf": cases, "allOf": [schema], "uniqueItems": True}
    options = GenerationOptions(tools=[function("f", {"a": schema})])
    with pytest.raises(OptionError, match="holds 'f', of whose schema a part cannot be kept"):
        grammar_of(TOKENS, TOKENS.form(name), options)


WIDE = [*[{"$ref": "#/$defs/w"}] * 50, {"type": "string", "maxLength": 3}]


@pytest.mark.parametrize("name", FORMS)
def test_hostile_schemas(name, words):
    form = words.form(name)
    node = {
        "type": "object",
        "properties": {"next": {"$ref": "#/$defs/node"}},
        "additionalProperties": False,
    }
    tools = [
        function("long", {"a": {"type": "string", "maxLength": 1_000_000}}),
        function("deep", {"a": {"$ref": "#/$defs/node"}}, **{"$defs": {"node": node}}),
        function("spelled", {"a": {"const": "<tool_call>"}}),
        function("wide", {"a": {"$ref": "#/$defs/w"}}, **{"$defs": {"w": {"anyOf": WIDE}}}),
        {"type": "function", "function": {"name": "bare"}},
        {"name": "no_type", "parameters": {"x-guidance": {"whitespace_flexible": True}}},
        {"name": "null", "parameters": {"properties": None, "required": None}},
    ]
    for choice in ("required", "spelled", "deep", "long", "null"):
        grammar = grammar_of(words, form, GenerationOptions(tools=tools, tool_choice=choice))
        for seed in range(2):
            ids, is_whole = draw(words, grammar, seed)
            calls = calls_of(read(words, form, tools, ids))
            whole = [*filter(is_whole_call, calls)]
            assert all(isinstance(json.loads(call.arguments), dict) for call in whole)
            assert calls or not is_whole
            if choice == "spelled":
                assert {call.arguments for call in whole} <= {'{"a": "<tool_call>"}'}


def test_what_is_no_schema_is_refused_as_such(words):
    parameters = {"properties": {"a": {}}, "required": None}
    tool = {"name": "f", "parameters": parameters, "strict": True}
    options = GenerationOptions(tools=[tool], tool_choice="required")
    with pytest.raises(OptionError, match=r"'f', of whose schema .* be kept .it is no JSON Schema"):
        grammar_of(words, words.form("qwen3_coder"), options)


PATCH = """\
start: begin line+ end
begin: "*** Begin" LF
line: "+" /(.*)/ LF -> line
end: "*** End" LF?
%import common.LF
"""


def custom(syntax, definition):
    grammar = {"syntax": syntax, "definition": definition}
    return {
        "type": "custom",
        "custom": {"name": "patch", "format": {"type": "grammar", "grammar": grammar}},
    }


@pytest.mark.parametrize(
    ("syntax", "definition", "good", "bad"),
    [("lark", PATCH, "*** Begin\n+a\n*** End", "a"), ("regex", "[a-z]+/[0-9]", "ab/1", "ab")],
)
def test_the_grammar_of_a_custom_tool_holds_where_values_are_raw(
    words, syntax, definition, good, bad
):
    form, tools = words.form("qwen3_coder"), [custom(syntax, definition)]
    grammar = grammar_of(words, form, GenerationOptions(tools=tools, tool_choice="required"))
    head = "<tool_call>\n<function=patch>\n<parameter=input>\n"
    end = "\n</parameter>\n</function>\n</tool_call>"
    ids = words.encode(head + good + end)
    assert fits(words, grammar, ids) == (len(ids), True)
    [call] = calls_of(read(words, form, tools, ids))
    assert json.loads(call.arguments) == {"input": good}
    assert not fits(words, grammar, words.encode(head + bad + end))[1]
    assert parameters_of(tools[0])["required"] == ["input"]


def test_the_token_that_ends_answers_is_left_to_the_model():
    form = TOKENS.form("mistral")
    calls = replace(form.calls, closing="]<end>")
    form = replace(form, calls=calls, special={**form.special, "<end>": 0})
    options = GenerationOptions(tools=[STOP], tool_choice="required")
    ids = TOKENS.encode('[TOOL_CALLS][{"name": "stop", "arguments": {}}]')
    assert fits(TOKENS, grammar_of(TOKENS, form, options), ids) == (len(ids), True)
