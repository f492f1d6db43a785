"""The Python reference as Markdown, from signatures and docstrings."""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from typing import Any

import ov_specdec
from ov_specdec import errors

SECTIONS: dict[str, dict[str, tuple[str, ...]]] = {
    "Generating": {
        "SpeculativePipeline": (
            *("generate", "stream", "generate_batch", "open_batch", "prepare", "complete_options"),
            *("save_cache", "load_cache", "close"),
        ),
        "GenerationStream": ("cancel", "close"),
        "Batch": ("add", "step", "cancel", "close"),
        "GenerationOptions": (),
        "Message": (),
    },
    "Speech": {
        "SpeechPipeline": ("transcribe", "stream", "prepare", "close"),
        "TranscriptionOptions": (),
        "TranscriptionStream": ("cancel", "close"),
        **dict.fromkeys(("TranscriptionResult", "TranscriptionChunk", "Segment"), ()),
        "SpeechStats": ("real_time_factor", "encoder_share", "as_dict"),
    },
    "Results": dict.fromkeys(
        ("GenerationResult", "Chunk", "ToolCall", "GenerationStats", "RoundStats"), ()
    ),
}
"""Classes by section, each with the methods that are shown."""

PARAMETER = re.compile(r"(?:[a-z]\w*)(?:, [a-z]\w*)*: ")


def reference() -> str:
    """All sections, and the errors."""
    return "".join(
        f"## {title}\n\n{''.join(part for name in classes for part in _class(name, classes[name]))}"
        for title, classes in SECTIONS.items()
    ) + "".join(["## Errors\n\n", *(f"- `{name}`: {line}\n" for name, line in _errors()), "\n"])


def _class(name: str, methods: tuple[str, ...]) -> Iterator[str]:
    """A class, and some of its methods."""
    own = getattr(ov_specdec, name)
    made = _signature(own.__init__, name) if name.endswith("Pipeline") else ""
    yield f"### {name}\n\n{made}{as_list(inspect.getdoc(own) or '')}\n\n"
    for method in methods:
        found = inspect.getattr_static(own, method)
        found = getattr(found, "fget", None) or getattr(own, method)
        heading = f"#### {name}.{method}"
        yield f"{heading}\n\n{_signature(found, method)}{as_list(inspect.getdoc(found) or '')}\n\n"


def _signature(function: Any, name: str) -> str:
    """A function's head as it is written; empty where it is not written, as in dataclasses."""
    try:
        source = textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError):
        return ""
    head = ast.parse(source).body[0]
    if not isinstance(head, ast.FunctionDef) or head.name == "__init__" == name:
        return ""
    result = f" -> {ast.unparse(head.returns)}" if head.name != "__init__" and head.returns else ""
    given = ast.unparse(head.args).removeprefix("self").removeprefix(", ")
    return f"```\n{name}({given}){result}\n```\n\n"


def _errors() -> Iterator[tuple[str, str]]:
    """Each error, and the first paragraph of its docstring."""
    for name, kind in vars(errors).items():
        if inspect.isclass(kind) and issubclass(kind, errors.SpecdecError):
            yield name, " ".join((inspect.getdoc(kind) or "").partition("\n\n")[0].split())


def as_list(text: str) -> str:
    """Markdown of a docstring; a parameter's line and those after it are one item of a list."""
    lines: list[str] = []
    in_item = False
    for line in text.splitlines():
        if names := PARAMETER.match(line):
            lines += [] if in_item or not lines or not lines[-1] else [""]
            bold = ", ".join(f"`{name}`" for name in names.group()[:-2].split(", "))
            lines.append(f"- {bold}: {line[names.end() :]}")
        else:
            lines.append(f"    {line.strip()}" if in_item and line else line)
        in_item = bool(names) or (in_item and bool(line))
    return "\n".join(lines).replace("<", "&lt;")
