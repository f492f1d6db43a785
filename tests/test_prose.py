"""The English of pages: bounds on words, lengths of sentences; words of our own are warned of."""

import re
import warnings
from pathlib import Path
from statistics import mean

import pytest

ROOT = Path(__file__).parent.parent

BOUNDS = {
    **{"README.md": 700, "CONTRIBUTING.md": 700, "models/README.md": 1200, "docs/index.md": 150},
    **{"docs/guide.md": 2000, "docs/models.md": 700, "docs/server.md": 1500},
    **{"docs/cluster.md": 800, "docs/speech.md": 700, "docs/devices.md": 500, "docs/demo.md": 400},
    **{"docs/exactness.md": 900, "docs/architecture.md": 1800, "docs/planner.md": 1500},
    **{"docs/comparison.md": 500, "docs/benchmarks.md": 900, "docs/benchmarking.md": 600},
    **{"docs/troubleshooting.md": 400},
}
"""Most words of prose; code, tables and what is generated do not count."""

GENERATED = {f"docs/{name}.md" for name in ("cli", "modules", "options", "reference")}
LONGEST, AVERAGE = 30, 18  # words of a sentence, and of a page's sentences on average
PRIVATE = dict(
    line.split(": ", 1)
    for line in (ROOT / "tests" / "words.txt").read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
)
NO_PROSE = re.compile(
    r"^(```|~~~).*?^\1|<!-- figures: .*?<!-- end -->|<!--.*?-->|^<details>.*?^</details>"
    r"|^\|.*?$|^#.*?$|^\[[^\]]+\]: .*?$|<[^>\n]+>",
    re.DOTALL | re.MULTILINE,
)
LINK = re.compile(r"!?\[((?:[^\[\]]|\[[^\]]*\])*)\]\([^)]*\)")
END = re.compile(r"(?<=[.!?:])[)\"*_]*\s+(?=[A-Z`\"*(\[0-9])")


def paragraphs(page):
    """The prose of a page; a piece of code in a line is one word."""
    text = re.sub(r"`[^`]+`", "`code`", NO_PROSE.sub("\n\n", page))
    text = LINK.sub(lambda found: "" if found[0][0] == "!" else found[1], text)
    items = re.sub(r"^\s*(?:[-*]|\d+\.)\s+", "\n\n", text, flags=re.MULTILINE)
    return [" ".join(part.split()) for part in re.split(r"\n\s*\n", items) if part.strip()]


def sentences(page):
    return [sentence for part in paragraphs(page) for sentence in END.split(part)]


def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", BOUNDS)
def test_a_page_is_short_and_so_are_its_sentences(name):
    found = sentences(read(name))
    sizes = [len(sentence.split()) for sentence in found]
    own = {w: re.findall(rf"\b{w}\b", " ".join(found), re.IGNORECASE) for w in PRIVATE}
    if own := {f"'{word}' ({len(own[word])}): {PRIVATE[word]}" for word in own if own[word]}:
        warnings.warn(f"{name} has words of our own: {'; '.join(sorted(own))}", stacklevel=1)
    too_long = [f"{n} words: {s}" for s, n in zip(found, sizes, strict=True) if n > LONGEST]
    assert (sum(sizes) <= BOUNDS[name], mean(sizes) <= AVERAGE, too_long) == (True, True, []), (
        f"{sum(sizes)} words of {BOUNDS[name]}, {mean(sizes):.1f} a sentence of {AVERAGE}"
    )


def test_every_page_has_a_bound():
    pages = {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").glob("*.md")}
    assert pages - GENERATED - set(BOUNDS) == set()


def test_the_entry_of_a_version_is_short():
    entry = re.search(r"^## \[?0\.1\.0.*?(?=^## |\Z)", read("CHANGELOG.md"), re.DOTALL | re.M)
    assert entry, "there is no entry for 0.1.0"
    assert sum(len(s.split()) for s in sentences(entry[0])) <= 400


def test_prose_is_told_from_the_rest():
    page = "# Head\n\nOne `a b` [two](x). Three!\n\n```sh\nno\n```\n| no |\n- four\n- five\n"
    assert sentences(page) == ["One `code` two.", "Three!", "four", "five"]
