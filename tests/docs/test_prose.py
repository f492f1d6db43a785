"""Pages stay short."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GENERATED = ("cli", "modules", "options", "reference")
PAGES = [p for p in ROOT.glob("docs/*.md") if p.stem not in GENERATED]
NO_PROSE = re.compile(
    r"^(```).*?^\1|<!-- figures: .*?<!-- end -->|^<details>.*?^</details>|^\|.*?$|<[^>\n]+>",
    re.DOTALL | re.MULTILINE,
)


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda path: path.name)
def test_a_page_is_short(page):
    prose = NO_PROSE.sub(" ", page.read_text(encoding="utf-8"))
    assert len(prose.split()) <= (750 if page.name == "README.md" else 2200)
