"""Answers a file of requests into a file of results, in OpenAI's batch format."""

from ov_specdec.batch_file.digests import find_changed
from ov_specdec.batch_file.results import Results
from ov_specdec.batch_file.run import Serving, Tally, answer_lines

__all__ = ["Results", "Serving", "Tally", "answer_lines", "find_changed"]
