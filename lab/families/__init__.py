"""All decoder families that Optimum exports: tiny random models against transformers.

`python -m lab.families` makes the table in docs/models.md; see `__main__.py`.
"""
