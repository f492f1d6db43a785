"""The decoding methods that `bench` compares."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ov_specdec.drafters.factory import DrafterName
from ov_specdec.errors import OptionError
from ov_specdec.options import MAX_DRAFT_LENGTH


@dataclass(frozen=True)
class Method:
    """A decoding method. drafter: of its pipeline. options: of its generations.

    With a draft length of 0, a pipeline with any drafter decodes plainly.
    """

    name: str
    drafter: DrafterName
    options: Mapping[str, int] = field(default_factory=dict)


PLAIN = Method("plain", "none", {"num_assistant_tokens": 0})
METHODS = (
    PLAIN,
    Method("adaptive", "model"),
    Method("suffix", "suffix"),
    Method("prompt-lookup", "prompt-lookup"),
    Method("both", "both"),
)
"""Plain decoding, and each drafter with the default draft length."""

BY_NAME = {method.name: method for method in METHODS}


def find_method(name: str) -> Method:
    """The method with a name; `OptionError` for an unknown name."""
    if name in BY_NAME:
        return BY_NAME[name]
    length = re.fullmatch(r"constant-([1-9]\d*)", name)
    if length and int(length[1]) <= MAX_DRAFT_LENGTH:
        return Method(name, "model", {"num_assistant_tokens": int(length[1])})
    raise OptionError(
        f"method '{name}' does not exist: use {', '.join(BY_NAME)} or constant-N, N from 1 to "
        f"{MAX_DRAFT_LENGTH}"
    )


def select_methods(names: Iterable[str]) -> list[Method]:
    """The methods of these names, each once, plain decoding first."""
    return [find_method(name) for name in dict.fromkeys([PLAIN.name, *names])]
