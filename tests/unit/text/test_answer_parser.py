"""What is read in an answer, however it is cut."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ov_specdec.results.parts import (
    Arguments,
    CallBegin,
    CallEnd,
    Reasoning,
    Text,
    ToolCall,
    calls_of,
    joined,
)
from ov_specdec.text.answer_format import (
    CALL_FORMATS,
    ID,
    INDEX,
    AnswerFormat,
    CallFormat,
    ReasoningFormat,
)
from ov_specdec.text.answer_parser import AnswerParser
from tests.support.answers import TOKENS, read
from tests.support.tools import function

THINK = ReasoningFormat("<think>", "</think>")
TOOLS = [
    function("note", {"text": {"type": "string"}, "more": {}, "list": {"type": "array"}}),
    function("stop"),
]
SPELLED = st.sampled_from(
    ["<tool_call>", "</tool_call>", "</parameter>", "<think>", '"}}', "}\n</tool_call>", "\\", '"']
)
TEXTS = st.lists(st.one_of(st.text(max_size=6), SPELLED), max_size=5).map("".join)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


def write(form, calls):
    """Calls as a template writes them."""
    c, p = form.calls, form.calls.parameters

    def argument(key, value):
        value = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        return f"{p.before}{key}{p.between[0]}{value}{p.after}"

    def call(name, arguments):
        held = json.dumps(arguments, separators=c.separators, ensure_ascii=False)
        held = held if p is None else "".join(map(argument, arguments, arguments.values()))
        return f"{c.before}{name}{c.middle}{held}{c.after}"

    return c.opening + (c.separator or "").join(call(*each) for each in calls) + c.closing


def parse(form, text, cuts=(), *, tools=TOOLS, is_reasoning=False, is_cut=False):
    parser = AnswerParser(form, tools, is_reasoning)
    places = [0, *sorted({min(cut, len(text)) for cut in cuts}), len(text)]
    cut = pairwise(places)
    parts = [part for start, end in cut for part in parser.push(text[start:end])]
    return [*joined([*parts, *parser.end(is_cut=is_cut)])]


@given(
    st.sampled_from([*CALL_FORMATS]),
    st.lists(st.tuples(TEXTS, st.lists(JSON, max_size=3)), min_size=1, max_size=3),
    st.lists(st.integers(0, 400), max_size=12),
)
def test_calls_are_those_that_were_written(name, given, cuts):
    form = AnswerFormat(CALL_FORMATS[name], THINK)
    calls = [("note", {"text": text, "list": items}) for text, items in given]
    calls = calls[: 1 if form.calls.separator is None else 3]
    if form.calls.parameters:  # a text that holds what ends it cannot be written
        calls = [
            (name, {**held, "text": held["text"].replace("</parameter>", "")})
            for name, held in calls
        ]
    text = write(form, calls)
    parts = parse(form, text, cuts)
    assert [(call.name, json.loads(call.arguments)) for call in calls_of(parts)] == calls
    assert {type(part) for part in parts} == {CallBegin, Arguments, CallEnd}
    assert parts == parse(form, text, range(len(text)))


@given(
    st.sampled_from([*CALL_FORMATS]),
    st.lists(
        st.one_of(TEXTS, st.sampled_from(["{", "<tool", "\n", " ", "[TOOL_CALLS]", "name"]))
    ).map("".join),
    st.lists(st.integers(0, 60), max_size=8),
    st.booleans(),
)
def test_any_text_is_read_alike_however_it_is_cut(name, text, cuts, is_reasoning):
    form = AnswerFormat(CALL_FORMATS[name], THINK)
    whole = parse(form, text, is_reasoning=is_reasoning)
    assert parse(form, text, cuts, is_reasoning=is_reasoning) == whole


@given(st.text(), st.lists(st.integers(0, 60), max_size=8))
def test_a_text_without_markers_stays_as_it_is(text, cuts):
    for form in (AnswerFormat(), AnswerFormat(CALL_FORMATS["hermes"], THINK)):
        if form.calls is None or not any(mark in text for mark in ("<tool_call>", "<think>")):
            parts = parse(form, text, cuts)
            assert parts == ([Text(text)] if text else [])


def test_white_space_around_markers_is_the_template_s():
    form = AnswerFormat(CALL_FORMATS["hermes"], THINK)
    calls = write(form, [("stop", {}), ("stop", {})])
    parts = parse(form, f"\n<think>\n1 < 2\n\n</think>\n\n It is.\n\n{calls}\n", range(99))
    stop = [CallBegin("stop"), Arguments("{}"), CallEnd()]
    assert parts == [Reasoning("1 < 2"), Text("It is."), *stop, *stop]
    assert parse(form, "  It is.\n") == [Text("  It is.\n")]


@pytest.mark.parametrize(
    ("is_reasoning", "expected"),
    [
        (False, [Text("a</think>b")]),
        (True, [Reasoning("a"), Text("b")]),
        (None, [Text("a</think>b")]),
    ],
)
def test_the_prompt_may_have_begun_the_reasoning(is_reasoning, expected):
    form = AnswerFormat(None, THINK)
    assert parse(form, "a</think>b", range(10), is_reasoning=is_reasoning) == expected


@pytest.mark.parametrize("name", CALL_FORMATS)
def test_a_call_that_is_cut_gives_the_beginning_of_its_arguments(name):
    form = AnswerFormat(CALL_FORMATS[name])
    arguments = {"text": 'a"\n\u00e9</tool_call>', "list": [1, {"b": None}]}
    text = write(form, [("note", arguments)])
    whole = json.dumps(arguments, ensure_ascii=False)
    end = text.rindex(form.calls.after + form.calls.closing)
    for length in range(len(text)):
        parts = parse(form, text[:length], range(length), is_cut=True)
        assert all(isinstance(part, CallBegin | Arguments) for part in parts) or length > end
        written = "".join(part.text for part in parts if isinstance(part, Arguments))
        assert whole.startswith(written)
        assert CallEnd() not in parts or length > end
        calls = [ToolCall("note", written, is_whole=CallEnd() in parts)]
        assert calls_of(parts) == (calls if CallBegin("note") in parts else [])
    assert written in (whole, whole[:-1])


def test_the_beginning_of_a_marker_is_text_unless_the_answer_is_cut():
    for name in ("hermes", "llama3_json"):
        form = AnswerFormat(CALL_FORMATS[name], THINK)
        for marker in ("<think>", form.calls.marker):
            for size in range(1, len(marker)):
                begun = marker[:size]
                assert parse(form, begun, range(size)) == [Text(begun)]
                assert parse(form, begun, range(size), is_cut=True) == []
        assert parse(form, "a </th", is_reasoning=True) == [Reasoning("a </th")]
        assert parse(form, "a </th", is_reasoning=True, is_cut=True) == [Reasoning("a ")]
    assert parse(form, "a {", is_cut=True) == [Text("a {")]


def test_values_by_themselves_become_json():
    form = AnswerFormat(CALL_FORMATS["qwen3_coder"])
    either = {"anyOf": [{"type": "string"}, {"type": "null"}]}
    kinds = {"a": {"type": "boolean"}, "b": either, "c": either, "d": {"$ref": "#/$defs/n"}}
    tool = function("f", kinds, **{"$defs": {"n": {"type": ["number", "null"]}}})
    values = {"a": "True", "b": "null", "c": "nullify", "d": "1e3", "e": "1"}
    text = write(form, [("f", values)])
    [call] = calls_of(parse(form, text, range(len(text)), tools=[tool]))
    assert call.arguments == '{"a": true, "b": null, "c": "nullify", "d": 1e3, "e": "1"}'


def test_a_number_beside_the_call_is_left_out_and_an_id_is_kept():
    calls = CallFormat("<calls>", "<call>", f":{INDEX} {ID}<args>", "</call>", "", "</calls>")
    text = "<calls><call>a.b:0:0 aB3<args>{}</call><call>stop:1 c<args>{}</call></calls>"
    parts = parse(AnswerFormat(calls), text, range(len(text)))
    assert [p for p in parts if isinstance(p, CallBegin)] == [
        CallBegin("a.b:0", "aB3"),
        CallBegin("stop", "c"),
    ]
    assert len(calls_of(parts)) == 2


@pytest.mark.parametrize("size", [1, 4096])
def test_long_arguments_take_linear_time(size):
    form = AnswerFormat(CALL_FORMATS["qwen3_coder"])
    tool = function("f", {"a": {"type": "string"}, "b": {"type": "array"}})
    text = write(form, [("f", {"a": "x<\n" * 40_000, "b": ["y"] * 20_000})])
    [call] = calls_of(parse(form, text, range(0, len(text), size), tools=[tool]))
    assert len(json.loads(call.arguments)["a"]) == 120_000


def test_white_space_comes_at_once_where_no_marker_can_follow():
    parser = AnswerParser(AnswerFormat(None, THINK), [], False)
    assert [*parser.push("It is."), *parser.push(" \n")] == [Text("It is."), Text(" \n")]


def test_an_unfinished_character_before_a_marker_is_shown():
    form = TOKENS.form("hermes", thinks=True)
    half = next(token for token in range(300) if TOKENS.piece(None, token) == b"\xc3")
    ids = [*TOKENS.encode("a"), half, TOKENS.markers["</think>"], *TOKENS.encode("b")]
    parts = read(TOKENS, form, [], ids, is_reasoning=True)
    assert parts == [Reasoning("a\ufffd"), Text("b")]
