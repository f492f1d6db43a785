"""Writes what is made from the code and from figures, by `python -m lab.docs`."""

from lab.benchmarks.figures.results import Results
from lab.docs.figure_tables import PAGES, filled
from lab.docs.made import made
from lab.docs.option_tables import KWARGS, OPTIONS, kwargs, options_page

if __name__ == "__main__":
    OPTIONS.write_text(options_page(), encoding="utf-8")
    KWARGS.write_text(kwargs(), encoding="utf-8")
    results = Results.all()
    for page in PAGES:
        page.write_text(filled(made(page.read_text(encoding="utf-8")), results), encoding="utf-8")
