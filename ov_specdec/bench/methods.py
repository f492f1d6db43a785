"""The methods that `bench` compares: ways of one pair to decode."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ov_specdec.drafters.factory import DrafterName
from ov_specdec.errors import OptionError
from ov_specdec.options import MAX_DRAFT_LENGTH


@dataclass(frozen=True)
class Method:
    """A way to decode. drafter: of its pipeline. options: of its generations.

    A pipeline with any drafter decodes plainly where it is told to draft nothing.
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
    """The method of a name; `OptionError` for a name that means nothing."""
    if name in BY_NAME:
        return BY_NAME[name]
    length = re.fullmatch(r"constant-([1-9]\d*)", name)
    if length and int(length[1]) <= MAX_DRAFT_LENGTH:
        return Method(name, "model", {"num_assistant_tokens": int(length[1])})
    raise OptionError(
        f"method '{name}' does not exist: there are {', '.join(BY_NAME)} and constant-N, N from 1 "
        f"to {MAX_DRAFT_LENGTH}"
    )


def select_methods(names: Iterable[str]) -> list[Method]:
    """The methods of these names, each once, plain decoding first."""
    return [find_method(name) for name in dict.fromkeys([PLAIN.name, *names])]
