"""The JSON Schema Test Suite: schemas are refused, or as many values judged alike as we say."""

import json
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from ov_specdec.errors import DeadEndError, OptionError
from ov_specdec.options.generation import GenerationOptions
from tests.support.structured import TOKENIZER, generator

pytestmark = pytest.mark.deep

SOURCE = "jsonschema==4.26.0"
"""Its source distribution has the suite."""

PAGE = Path(__file__).parents[3] / "docs" / "structured-output.md"


@pytest.fixture(scope="module")
def suite(tmp_path_factory):
    """Groups of cases by file."""
    folder = tmp_path_factory.mktemp("suite")
    download = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", "jsonschema"]
    subprocess.run([*download, "--dest", folder, SOURCE], check=True, timeout=300)
    [archive] = folder.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        opened.extractall(folder, filter="data")
    [root] = folder.glob("*/json/tests/draft2020-12")
    return {
        path.relative_to(root).with_suffix("").as_posix(): json.loads(path.read_text("utf-8"))
        for path in sorted(root.rglob("*.json"))
    }


def can_be_written(make, value):
    """Whether the grammar takes the value as compact JSON."""
    text, grammar = json.dumps(value, ensure_ascii=False, separators=(",", ":")), make(0)
    try:
        grammar.follow(TOKENIZER.encode(text))
    except DeadEndError:
        return False
    return grammar.accepts()


def test_as_many_cases_as_the_page_says_are_judged_alike(suite):
    grammars, num_alike, num_cases = generator().texts.grammars, 0, 0
    for groups in suite.values():
        for group in groups:
            try:
                make = grammars.compile(GenerationOptions(json_schema=group["schema"]), {0})
            except OptionError:
                continue
            for case in group["tests"]:
                num_cases += 1
                num_alike += can_be_written(make, case["data"]) == case["valid"]
    assert f"{num_alike} of {num_cases}" in " ".join(PAGE.read_text("utf-8").split())
