"""Options of tools: their forms, and what is refused."""

import pickle

import pytest

from ov_specdec import GenerationOptions, OptionError
from ov_specdec.options.structured import as_function, definition_of
from tests.support.tools import AREA, STOP

CUSTOM = {
    "type": "custom",
    "custom": {
        "name": "apply_patch",
        "description": "Edit files.",
        "format": {"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: /a+/"}},
    },
}


def area(width: int, name: str = "field"):
    """
    The area of a field.

    Args:
        width: in meters.
        name: of the field.
    """


def named(name):
    return {"type": "function", "function": {"name": name}}


def test_functions_become_schemas_when_options_are_made():
    options = GenerationOptions(tools=[area, STOP])
    described, stop = options.tools
    assert stop == STOP
    assert definition_of(described)["parameters"]["required"] == ["width"]
    assert pickle.loads(pickle.dumps(options)).tools == options.tools  # noqa: S301


def test_each_form_of_a_tool_has_a_definition():
    flat = {"type": "function", "name": "area"}
    for tool, name in (
        (AREA, "area"),
        (CUSTOM, "apply_patch"),
        (flat, "area"),
        ({"name": "b"}, "b"),
    ):
        assert definition_of(tool)["name"] == name


def test_templates_see_functions_only_and_no_strict():
    strict = {**STOP, "function": {**STOP["function"], "strict": True}}
    assert as_function(strict) == STOP
    assert as_function({"name": "b", "strict": True}) == {"name": "b"}
    function = as_function(CUSTOM)["function"]
    assert (function["name"], function["description"]) == ("apply_patch", "Edit files.")
    assert function["parameters"]["required"] == ["input"]
    assert "start: /a+/" in function["parameters"]["properties"]["input"]["description"]


def test_a_choice_names_a_tool_by_its_type():
    for choice in (named("area"), "area"):
        assert GenerationOptions(tools=[AREA], tool_choice=choice).tool_choice == "area"
    by_type = {"type": "custom", "custom": {"name": "apply_patch"}}
    made = GenerationOptions(tools=[CUSTOM], tool_choice=by_type)
    assert made.tool_choice == "apply_patch"


def test_a_model_may_call_what_is_given_and_not_forbidden():
    assert GenerationOptions(tools=[AREA]).may_call
    assert not GenerationOptions(tools=[AREA], tool_choice="none").may_call
    assert not GenerationOptions(tool_choice="none").may_call


def unhinted(width):
    """The area of a field."""


REFUSED = [
    ({"tools": [named('a"b')]}, "tools holds the name 'a\"b': give up to 128"),
    ({"tools": [{"type": "web_search"}]}, "tools holds the name None"),
    ({"tools": [AREA, STOP, AREA]}, "tools holds 'area' twice: rename one"),
    ({"tools": [unhinted]}, r"cannot be described \(.*: give a schema"),
    (
        {"tools": [AREA, STOP], "tool_choice": named("volume")},
        "tool_choice='volume' names none of the tools: give one of area, stop",
    ),
    ({"tool_choice": "required"}, "tool_choice='required' has no effect without tools"),
    ({"tools": [AREA], "ignore_eos": True}, "tools=.* contradicts ignore_eos=True"),
    ({"thinking_token_budget": 5, "ignore_eos": True}, "=5 ends the text, so it contradicts ign"),
    ({"thinking_token_budget": 0, "apply_chat_template": False}, "=0 has no effect with apply_c"),
]


@pytest.mark.parametrize(("options", "complaint"), REFUSED)
def test_what_cannot_be_meant_is_refused_by_name(options, complaint):
    with pytest.raises(OptionError, match=complaint) as refused:
        GenerationOptions(**options)
    assert refused.value.option in options
