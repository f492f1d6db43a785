"""The JSON Schema Test Suite: which schemas are refused, and which values are judged otherwise."""

import json
import subprocess
import sys
import tarfile
from collections import Counter
from pathlib import Path

import pytest

from ov_specdec.errors import DeadEndError, OptionError
from ov_specdec.options.generation import GenerationOptions
from tests.support.structured import TOKENIZER, generator

pytestmark = pytest.mark.deep

SOURCE = "jsonschema==4.26.0"
"""Its source distribution has the suite."""

PAGE = Path(__file__).parents[3] / "docs" / "structured-output.md"

INVALID_BUT_WRITTEN = {
    "optional/ecmascript-regex": 1,  # U+FEFF is no whitespace
    "optional/format/date-time": 2,  # leap seconds at any time
    "optional/format/date": 2,  # 29 February of any year
    "optional/format/time": 10,
}

VALID_BUT_NOT_WRITTEN = {
    "allOf": 2,  # properties in another order
    "const": 5,  # 1.0 for 1
    "enum": 4,
    "format": 10,  # is no more than a note there
    "optional/ecmascript-regex": 1,
    "optional/float-overflow": 1,
    "optional/format/email": 4,
    "optional/format/ipv6": 4,
    "type": 1,
}


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


def test_each_schema_is_refused_or_kept(suite):
    grammars, wrong, num_cases = generator().grammars, {True: Counter(), False: Counter()}, 0
    for name, groups in suite.items():
        for group in groups:
            try:
                make = grammars.compile(GenerationOptions(json_schema=group["schema"]), {0})
            except OptionError:
                continue
            for case in group["tests"]:
                num_cases += 1
                if can_be_written(make, case["data"]) != case["valid"]:
                    wrong[case["valid"]][name] += 1
    assert wrong == {True: VALID_BUT_NOT_WRITTEN, False: INVALID_BUT_WRITTEN}
    num_alike = num_cases - sum(counts.total() for counts in wrong.values())
    assert f"{num_alike} of {num_cases}" in " ".join(PAGE.read_text("utf-8").split())
