"""The documents keep step with the code."""

import re
from pathlib import Path

import pytest

from lab.benchmarks.charts import CHARTS, IMAGES
from lab.benchmarks.figures.results import Results
from lab.docs.figure_tables import PAGES, filled
from lab.docs.made import made, metrics
from lab.docs.option_tables import KWARGS, OPTIONS, kwargs, options_page

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
OUTSIDE_THE_SITE = sorted(
    page for pattern in ("*.md", "models/**/*.md", "lab/*.md") for page in ROOT.glob(pattern)
)
"""Documents that mkdocs does not look at, so that it does not check their links."""


def test_the_tables_of_options_are_what_their_descriptions_say():
    assert OPTIONS.read_text(encoding="utf-8") == options_page(), "run: python -m lab.docs"


def test_the_keyword_arguments_are_the_options():
    assert KWARGS.read_text(encoding="utf-8") == kwargs(), "run: python -m lab.docs"


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_blocks_are_what_the_code_has(page):
    text = page.read_text(encoding="utf-8")
    assert text == made(text), "run: python -m lab.docs"


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_tables_of_figures_are_what_was_measured(page):
    text = page.read_text(encoding="utf-8")
    assert text == filled(text, Results.all()), "run: python -m lab.docs"


@pytest.mark.parametrize("name", CHARTS)
def test_charts_are_of_the_figures(name):
    _, can_be_drawn, *_ = CHARTS[name]
    stamps = [results.stamp for results in Results.all() if can_be_drawn(results)]
    drawn = (IMAGES / f"{name}.svg").read_text(encoding="utf-8") if stamps else ""
    assert all(stamp in drawn for stamp in stamps), "run: python -m lab.benchmarks charts"
    assert (IMAGES / f"{name}.svg").exists() == bool(stamps)


def test_every_metric_of_the_dashboard_exists():
    asked = set(re.findall(r"ov_specdec:\w+", (DOCS / "grafana.json").read_text("utf-8")))
    known = set(re.findall(r"ov_specdec:\w+", metrics()))
    of_histograms = re.compile(r"_(bucket|sum|count)$")
    assert {of_histograms.sub("", name) for name in asked} <= known
    assert len(asked) > 12


@pytest.mark.parametrize("document", OUTSIDE_THE_SITE, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document):
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", document.read_text(encoding="utf-8")):
        assert (document.parent / target).exists(), target
