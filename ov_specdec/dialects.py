"""The interfaces of the server and of batch files: a dialect is a package, and a name here."""

from collections.abc import Sequence

from ov_specdec.anthropic.dialect import ANTHROPIC
from ov_specdec.api.dialect import Dialect
from ov_specdec.ollama.dialect import OLLAMA
from ov_specdec.openai.dialect import OPENAI

DIALECTS: Sequence[Dialect] = (OPENAI, ANTHROPIC, OLLAMA)
"""Paths that have none speak the first."""


def dialect_of(path: str, dialects: Sequence[Dialect] = DIALECTS) -> Dialect:
    """The dialect of a path, and of errors there, also where there is nothing."""
    own = (each for each in dialects if f"{path}/".startswith(f"{each.prefix}/"))
    return max(own, key=lambda each: len(each.prefix), default=dialects[0])


INPUTS = {"text": "/v1/completions", "recordings": "/v1/audio/transcriptions"}
"""A path for each kind of input, to name in errors."""
