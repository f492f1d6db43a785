"""Pages stay short."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

BOUNDS = {
    **{"README.md": 700, "CONTRIBUTING.md": 700, "models/README.md": 1200, "docs/index.md": 150},
    **{"docs/guide.md": 2000, "docs/models.md": 700, "docs/server.md": 1500},
    **{"docs/cluster.md": 800, "docs/speech.md": 700, "docs/devices.md": 500, "docs/demo.md": 400},
    **{"docs/exactness.md": 920, "docs/architecture.md": 1200, "docs/planner.md": 500},
    **{"docs/comparison.md": 500, "docs/benchmarks.md": 900, "docs/benchmarking.md": 600},
    **{"docs/troubleshooting.md": 400, "docs/structured-output.md": 500},
}
"""Most words of prose; code, tables and what is generated do not count."""

GENERATED = {f"docs/{name}.md" for name in ("cli", "modules", "options", "reference")}
NO_PROSE = re.compile(
    r"^(```|~~~).*?^\1|<!-- figures: .*?<!-- end -->|<!--.*?-->|^<details>.*?^</details>"
    r"|^\|.*?$|^#.*?$|^\[[^\]]+\]: .*?$|<[^>\n]+>"
    r"|!\[[^\]]*\]\([^)]*\)|\]\([^)]*\)",
    re.DOTALL | re.MULTILINE,
)


@pytest.mark.parametrize("name", BOUNDS)
def test_a_page_is_short(name):
    prose = NO_PROSE.sub(" ", (ROOT / name).read_text(encoding="utf-8"))
    one_word_each = re.sub(r"`[^`]+`", "code", prose)
    assert len(re.findall(r"(?<!\S)\S*\w\S*", one_word_each)) <= BOUNDS[name]


def test_every_page_has_a_bound():
    pages = {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").glob("*.md")}
    assert pages - GENERATED - set(BOUNDS) == set()
