"""The chat templates that llama.cpp publishes: their calls are read, or refused with a reason."""

import json
import re
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from jsonschema import validate

from ov_specdec.options.generation import GenerationOptions
from ov_specdec.results.parts import Text, calls_of
from ov_specdec.text.format_probe import read_format
from tests.support.answers import Words, draw, grammar_of, read
from tests.support.tools import Template, function

pytestmark = pytest.mark.deep

PACKAGE = "llama-cpp-python==0.3.36"
FOLDER = "vendor/llama.cpp/models/templates/"

REFUSED = [
    *("ByteDance-Seed-OSS", "CohereForAI-c4ai-command-r-plus-tool_use"),
    *("CohereForAI-c4ai-command-r7b-12-2024-tool_use", "GigaChat3-10B-A1.8B"),
    *("Kimi-K2-Instruct", "Kimi-K2-Thinking", "Kimi-K3", "LFM2-8B-A1B", "LFM2.5-8B-A1B"),
    *("LFM2.5-Instruct", "MiniMax-M3", "fireworks-ai-llama-3-firefunction-v2"),
    *("google-gemma-4-31B-it", "google-gemma-4-31B-it-interleaved"),
    *("ibm-granite-granite-3.3-2B-Instruct", "llama-cpp-deepseek-r1"),
    *("meetkai-functionary-medium-v3.2", "muse-glimmer", "openai-gpt-oss-120b"),
    "openbmb-MiniCPM5-1B",
]


@pytest.fixture(scope="module")
def templates():
    """Those that name tools, by name. The package is downloaded once for all runs."""
    kept = Path(tempfile.gettempdir()) / "ov-specdec-published"
    if not (found := [*kept.glob("*.tar.gz")]):
        command = f"-m pip download --quiet --no-deps --no-binary :all: --dest {kept} {PACKAGE}"
        subprocess.run([sys.executable, *command.split()], check=True)
        found = [*kept.glob("*.tar.gz")]
    with tarfile.open(found[0]) as archive:
        files = [f for f in archive.getmembers() if FOLDER in f.name and f.name.endswith(".jinja")]
        texts = {Path(file.name).stem: archive.extractfile(file).read().decode() for file in files}
    return {name: text for name, text in texts.items() if "tools" in text}


def test_calls_are_read_or_refused_with_a_reason(templates):
    forms = {name: read_format(Template(text)) for name, text in templates.items()}
    refused = {name: form.reason for name, form in sorted(forms.items()) if form.reason}
    assert len(forms) == 63
    assert [*refused] == REFUSED
    assert all(reason.startswith("its chat template ") for reason in refused.values())
    assert all(form.calls for name, form in forms.items() if name not in REFUSED)


def test_what_fits_their_grammar_is_read_as_calls(templates):
    texts = {"a": {"type": "string", "maxLength": 9}, "b": {"enum": ["<tool", "\n</arg_value>"]}}
    others = {"c": {"type": ["integer", "null"]}, "d": {"type": "boolean"}}
    tools = [function("save", {**texts, **others}, required=["a", "d"]), function("stop")]
    schemas = {each["function"]["name"]: each["function"]["parameters"] for each in tools}
    options = GenerationOptions(tools=tools, tool_choice="required")
    forms = [read_format(Template(text)) for text in templates.values()]
    unique = {str(form): form for form in forms if form.calls}.values()
    for form, has_tokens in product(unique, (True, False)):
        named = re.findall(r"<[^<>\s\"']+>|\[/?[A-Z_]+\]", f"{form.calls} {form.reasoning}")
        words = Words(*(sorted({*named}) if has_tokens else []))
        form = replace(form, special=words.markers)
        for is_reasoning in (False, True, None) if form.reasoning else (False,):
            grammar = grammar_of(words, form, options, is_reasoning=is_reasoning)
            ids, is_whole = draw(words, grammar, 0, 200)
            parts = read(words, form, tools, ids, is_reasoning=is_reasoning)
            for call in (call for call in calls_of(parts) if call.is_whole):
                validate(json.loads(call.arguments), schemas[call.name])
            assert not is_whole or calls_of(parts)
            assert not is_whole or not any(isinstance(part, Text) for part in parts)
