"""What is made from the descriptions of options: keyword arguments, and a page of tables."""

import json
from collections.abc import Iterable
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import ov_specdec
from ov_specdec.description import Described, by_group, describe
from ov_specdec.options import GenerationOptions
from ov_specdec.speech.options import GENERATION as FOR_SPEECH
from ov_specdec.speech.options import TranscriptionOptions

OPTIONS = Path(__file__).parent.parent / "docs" / "options.md"
KWARGS = Path(ov_specdec.__file__).parent / "kwargs.py"

OPTIONS_INTRODUCTION = """\
# Options of a generation

All options with their names in [Python](guide.md#options), on the [command line](cli.md) and in
requests to the [server](server.md#fields). `python -m tests.docs` writes this page from their
descriptions in `ov_specdec/options.py`.
"""


def options_page(options: type = GenerationOptions) -> str:
    """The page: a table for each group of options."""
    described = describe(options)
    groups = {
        **{group: [described[n] for n in names] for group, names in by_group(options).items()},
        "Speech": list(describe(TranscriptionOptions).values()),
    }
    tables = [
        "\n".join([f"## {group}\n", *TABLE_HEAD, *map(_row, rows), ""])
        for group, rows in groups.items()
    ]
    return "\n".join([OPTIONS_INTRODUCTION, *tables])


TABLE_HEAD = (
    "| Python | type | default | command line | request | effect |",
    "|---|---|---|---|---|---|",
)

IN_WORDS = {int: "whole number", float: "number", bool: "true or false", str: "text"}


def _row(each: Described) -> str:
    about = each.about
    default = about.unset or ("none" if each.default in (None, ()) else f"{each.default}")
    cells = (
        f"`{each.name}`",
        _in_words(each),
        default,
        f"`{each.flag}`" if each.flag else "",
        f"`{each.field}`" if each.field else "",
        " ".join(filter(None, (about.help, about.more))),
    )
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _in_words(each: Described) -> str:
    """Type and bounds of an option."""
    of = f" of {each.about.unit}" if each.about.unit else ""
    kinds = [f"{IN_WORDS[kind]}{of}{_bounds(each)}" for kind in each.kinds if kind in IN_WORDS]
    choices = [f"`{choice}`" for choice in each.choices]
    if each.item in IN_WORDS:
        kinds = [f"one {IN_WORDS[each.item]} or several{_bounds(each)}"]
    return ", ".join([*kinds, *choices]) or f"`{_source(each.kind).removesuffix(' | None')}`"


def _bounds(each: Described) -> str:
    about = each.about
    if str in (*each.kinds, each.item):
        return ""
    if about.low is None and about.above is None:
        return "" if about.high is None else f", up to {about.high:g}"
    if about.above is not None:
        return f", above {about.above:g}" + (f", up to {about.high:g}" if about.high else "")
    return (
        f", at least {about.low:g}" if about.high is None else f", {about.low:g} to {about.high:g}"
    )


GENERATION = "Those of `GenerationOptions`, and what transformers' `generate` takes besides."
OF_TRANSFORMERS = "".join(
    f"    {name}: Any\n" for name in ("generation_config", "input_ids", "attention_mask")
)

KWARGS_BEGINNING = '''\
"""The options as keyword arguments, so that editors and type checkers know them.

Made from their descriptions by `python -m tests.docs`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypedDict
'''


def kwargs(options: type = GenerationOptions) -> str:
    """The module with the options as dictionaries."""
    described = describe(options).values()
    speech = [each for each in described if each.name in FOR_SPEECH]
    parts = [
        KWARGS_BEGINNING,
        _typed_dict("GenerationKwargs", GENERATION, described) + OF_TRANSFORMERS,
        _typed_dict("SpeechKwargs", "Those of them that mean something for speech too.", speech),
        _typed_dict(
            "TranscriptionKwargs",
            "Those of `TranscriptionOptions`.",
            describe(TranscriptionOptions).values(),
            "SpeechKwargs",
        ),
    ]
    return "\n\n".join(parts)


def _typed_dict(
    name: str, docstring: str, described: Iterable[Described], base: str = "TypedDict"
) -> str:
    lines = [f"    {each.name}: {_source(each.kind)}" for each in described]
    head = f'class {name}({base}, total=False):\n    """{docstring}"""\n\n'
    return head + "\n".join(lines) + "\n"


def _source(kind: Any) -> str:
    """A type as one writes it."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        # As one would order them: None is last.
        return " | ".join(sorted(map(_source, parts), key=lambda part: part == "None"))
    if origin is Literal:
        return f"Literal[{', '.join(json.dumps(word) for word in parts)}]"
    if origin is not None:
        return f"{origin.__name__}[{', '.join(map(_source, parts))}]"
    return {NoneType: "None", ...: "..."}.get(kind) or getattr(kind, "__name__", str(kind))
