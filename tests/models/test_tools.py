"""Calls of tiny models are those of plain decoding, and what the command line shows of them."""

import json
from functools import partial
from pathlib import Path

import pytest
from jsonschema import validate

from ov_specdec import SpeculativePipeline
from ov_specdec.errors import OptionError
from ov_specdec.options.structured import definition_of
from tests.support.command_line import run
from tests.support.tools import AREA, STOP, TEMPLATES, merged, with_tools

TOOLS = [AREA, STOP]
SCHEMAS = {definition_of(tool)["name"]: definition_of(tool)["parameters"] for tool in TOOLS}
PROMPT = "def area("
PLAIN = {"num_assistant_tokens": 0}
ONE = {
    "tools": TOOLS,
    "thinking_token_budget": 12,
    "max_new_tokens": 180,
    "tool_choice": {"type": "function", "function": {"name": "area"}},
    "parallel_tool_calls": False,
}


@pytest.fixture(scope="module")
def folders(tiny_pair, tmp_path_factory):
    """The tiny pair with each template."""
    return {
        name: with_tools(tiny_pair, tmp_path_factory.mktemp(name), template)
        for name, template in TEMPLATES.items()
    }


@pytest.fixture(scope="module", params=TEMPLATES)
def form(request):
    return request.param


def check_calls(result):
    """Whole calls fit their schemas."""
    for call in result.tool_calls:
        if call.is_whole:
            validate(json.loads(call.arguments), SCHEMAS[call.name])


def seen(result):
    return result.text, result.reasoning, result.finish_reason, merged(result.chunks)


@pytest.mark.parametrize("name", ["hybrid/lfm2", "hybrid/qwen3_next", "windows/gemma3_text"])
def test_markers_may_be_text(name, form, tmp_path):
    folder = Path(__file__).parents[1] / "data" / name / "main"
    (main,) = with_tools([folder], tmp_path, TEMPLATES[form], markers=())
    asked = {name: value for name, value in ONE.items() if name != "thinking_token_budget"}
    settings = {"drafter": "suffix", "precision": "exact", "reasoning_parser": "none"}
    with SpeculativePipeline(main, **settings) as made:
        for sampling in ({}, {"temperature": 1.0, "seed": 5}):
            plain = made.generate(PROMPT, **asked, **sampling, **PLAIN)
            result = made.generate(PROMPT, **asked, **sampling)
            assert result.token_ids == plain.token_ids
            assert seen(result) == seen(plain)
            check_calls(result)
            assert (result.finish_reason, result.text) == ("tool_calls", "")
            assert result.stats.forced > 5 or "nothing is drafted" in made.main.reason
        with pytest.raises(OptionError, match="thinking_token_budget needs"):
            made.generate(PROMPT, **ONE)


def test_the_command_line_shows_calls(folders, form, tmp_path):
    tools = tmp_path / "tools.json"
    tools.write_text(json.dumps(TOOLS))
    base = ("generate", PROMPT, "--main", folders[form][0], "--drafter", "none", "--tools", tools)
    asked = partial(run, *base, "--max-new-tokens", 180, "--thinking-token-budget", 5)
    shown = asked("--tool-choice", "area", "--no-parallel-tool-calls")
    assert shown.returncode == 0, shown.stderr
    (line,) = [line for line in shown.stdout.splitlines() if line]
    name, arguments = line.split(" ", 1)
    assert name == "area"
    validate(json.loads(arguments), SCHEMAS["area"])
    single = ("--no-parallel-tool-calls", "--json")
    content = json.loads(asked("--tool-choice", "area", *single).stdout)
    assert (content["finish_reason"], content["text"]) == ("tool_calls", "")
    assert content["tool_calls"][0] == {"name": "area", "arguments": arguments}
    refused = asked("--tool-choice", "volume")
    assert "--tool-choice volume names none of the tools: give one of area, stop" in refused.stderr
