"""Everything that the pages state in figures, measured into one file for each column."""

from lab.benchmarks.figures.command import figures

__all__ = ["figures"]
