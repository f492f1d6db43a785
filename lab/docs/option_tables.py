"""What is made from the descriptions of options: keyword arguments, and a page of tables."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

import ov_specdec
from ov_specdec.cli.declare import flag_name
from ov_specdec.generation.pipeline_options import PipelineOptions, SpeechPipelineOptions
from ov_specdec.options.generation import GenerationOptions
from ov_specdec.options.model import (
    Options,
    as_tuple,
    by_group,
    display_of,
    in_words,
    request_fields,
)
from ov_specdec.speech.options import FOR_SPEECH, TranscriptionOptions

OPTIONS = Path(__file__).parents[2] / "docs" / "options.md"
KWARGS = Path(ov_specdec.__file__).parent / "options" / "kwargs.py"

OPTIONS_INTRODUCTION = """\
# Options of a generation

All options with their names in [Python](guide.md#options), on the [command line](cli.md) and in
requests to the [server](server.md#requests). `python -m lab.docs` writes this page from their
descriptions in `ov_specdec/options/generation.py`.
"""


def options_page(options: type[Options] = GenerationOptions) -> str:
    """The page: a table for each group of options."""
    tables: list[tuple[str, type[Options], list[str]]] = [
        *((group, options, names) for group, names in by_group(options.model_fields).items()),
        ("Speech", TranscriptionOptions, [*TranscriptionOptions.model_fields][:-1]),
        ("Pipelines", PipelineOptions, [*PipelineOptions.model_fields]),
    ]
    return "\n".join([OPTIONS_INTRODUCTION, *(_table(*each) for each in tables)])


TABLE_HEAD = (
    "| Python | type | default | command line | request | effect |",
    "|---|---|---|---|---|---|",
)


def _table(title: str, options: type[Options], names: Iterable[str]) -> str:
    fields = request_fields(options) if options is not PipelineOptions else {}
    rows = (_row(name, options.model_fields[name], fields.get(name, "")) for name in names)
    return "\n".join([f"## {title}\n", *TABLE_HEAD, *rows, ""])


def _row(name: str, option: FieldInfo, field: str) -> str:
    display = display_of(option)
    default = display.unset or ("none" if option.default in (None, ()) else f"{option.default}")
    flag = flag_name(name, option)
    cells = (
        f"`{name}`",
        in_words(option),
        default,
        f"`{flag}`" if flag else "",
        f"`{field}`" if field else "",
        " ".join(filter(None, (option.description, display.more))),
    )
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


SPEECH = "Those of `GenerationOptions` that mean something for speech too."
GENERATION = "All of them, and what transformers' `generate` takes besides."
OF_TRANSFORMERS = "".join(
    f"    {name}: Any\n" for name in ("generation_config", "input_ids", "attention_mask")
)

KWARGS_BEGINNING = '''\
"""The options as keyword arguments, so that editors and type checkers know them.

Made from their descriptions by `python -m lab.docs`.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict
'''


def kwargs(options: type[Options] = GenerationOptions) -> str:
    """The module with the options as dictionaries."""
    fields = options.model_fields
    speech = {name: option for name, option in fields.items() if name in FOR_SPEECH}
    text = {name: option for name, option in fields.items() if name not in FOR_SPEECH}
    own = {n: o for n, o in TranscriptionOptions.model_fields.items() if o.description}
    both = SpeechPipelineOptions.model_fields
    speech_pipeline = {n: o for n, o in both.items() if n not in ("main", "draft")}
    pipeline = {n: o for n, o in PipelineOptions.model_fields.items() if n not in both}
    parts = [
        KWARGS_BEGINNING,
        _typed_dict("SpeechKwargs", SPEECH, speech),
        _typed_dict("GenerationKwargs", GENERATION, text, "SpeechKwargs") + OF_TRANSFORMERS,
        _typed_dict("TranscriptionKwargs", "Those of `TranscriptionOptions`.", own, "SpeechKwargs"),
        _typed_dict("SpeechPipelineKwargs", OF_SPEECH_PIPELINE, speech_pipeline),
        _typed_dict("PipelineKwargs", OF_PIPELINE, pipeline, "SpeechPipelineKwargs"),
    ]
    return "\n\n".join(parts)


OF_SPEECH_PIPELINE = "Those of `SpeechPipelineOptions`, besides the models."
OF_PIPELINE = "Those of `PipelineOptions`, besides the models."


def _typed_dict(
    name: str, docstring: str, fields: Mapping[str, FieldInfo], base: str = "TypedDict"
) -> str:
    kinds = {each: _source(option.rebuild_annotation()) for each, option in fields.items()}
    lines = [f"    {each}: {kind}" for each, kind in kinds.items()]
    head = f'class {name}({base}, total=False):\n    """{docstring}"""\n\n'
    return head + "\n".join(lines) + "\n"


def _source(kind: Any) -> str:
    """A type as one writes it."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        others = [getattr(each, "json_schema_input_type", Any) for each in parts[1:]]
        inner = _source(next((o for o in others if o not in (Any, PydanticUndefined)), parts[0]))
        several = any(getattr(each, "func", None) is as_tuple for each in parts[1:])
        return f"{_source(get_args(parts[0])[0])} | {inner}" if several else inner
    if origin in (Union, UnionType):
        # As one would order them: None is last.
        return " | ".join(sorted(map(_source, parts), key=lambda part: part == "None"))
    if origin is Literal:
        return f"Literal[{', '.join(json.dumps(word) for word in parts)}]"
    if origin is not None:
        return f"{origin.__name__}[{', '.join(map(_source, parts))}]"
    if getattr(kind, "__module__", "").startswith("ov_specdec"):
        return "Any"  # of a higher layer
    named: dict[Any, str] = {NoneType: "None", ...: "..."}
    return named.get(kind) or str(getattr(kind, "__name__", kind))
