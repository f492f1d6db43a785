"""Pages stay short: all of them are read within an hour."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

BOUNDS = {
    **{"README.md": 500, "CONTRIBUTING.md": 600, "models/README.md": 500, "docs/index.md": 100},
    **{"docs/guide.md": 1150, "docs/models.md": 630, "docs/cli.md": 300, "docs/server.md": 950},
    **{"docs/cluster.md": 300, "docs/speech.md": 350, "docs/devices.md": 300},
    **{"docs/exactness.md": 735, "docs/architecture.md": 1200, "docs/planner.md": 600},
    **{"docs/comparison.md": 300, "docs/benchmarks.md": 525, "docs/benchmarking.md": 300},
    **{"docs/troubleshooting.md": 600, "docs/structured-output.md": 600, "docs/tools.md": 550},
}
"""Most words of a page; code, headings and what is generated do not count."""

OTHERS = 600
"""Most words of a page that is not listed."""

GENERATED = ("options.md", "reference.md")
PAGES = {*BOUNDS, *(f"docs/{p.name}" for p in ROOT.glob("docs/*.md") if p.name not in GENERATED)}
NOT_COUNTED = re.compile(
    r"^(```|~~~).*?^\1|<!-- (figures|made): .*?<!-- end -->|<!-- table -->.*?<!-- end of table -->"
    r"|^<details>.*?^</details>|^#.*?$|^\|[-:| ]+\|$|\|"
    r"|<[^>\n]+>|!\[[^\]]*\]\([^)]*\)|\]\([^)]*\)",
    re.DOTALL | re.MULTILINE,
)


@pytest.mark.parametrize("name", sorted(PAGES))
def test_a_page_is_short(name):
    words = NOT_COUNTED.sub(" ", (ROOT / name).read_text(encoding="utf-8"))
    one_word_each = re.sub(r"`[^`]+`", "code", words)
    assert len(re.findall(r"(?<!\S)\S*\w\S*", one_word_each)) <= BOUNDS.get(name, OTHERS)
