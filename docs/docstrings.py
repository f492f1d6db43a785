"""How the site lays out docstrings: lines such as `name: what it is` become a list."""

import re
from typing import Any

import griffe

PARAMETER = re.compile(r"(?:[a-z]\w*)(?:, [a-z]\w*)*: ")


def as_list(text: str) -> str:
    """Markdown of a docstring; a parameter's line and those after it are one item of a list."""
    lines: list[str] = []
    in_item = False
    for line in text.splitlines():
        names = PARAMETER.match(line)
        if names:
            if not in_item:
                lines.append("")
            bold = ", ".join(f"`{name}`" for name in names.group()[:-2].split(", "))
            lines.append(f"- {bold}: {line[names.end() :]}")
        elif in_item and line:
            lines.append(f"    {line.strip()}")
        else:
            lines.append(line)
        in_item = bool(names) or (in_item and bool(line))
    return "\n".join(lines)


class ListParameters(griffe.Extension):
    """Rewrites every docstring that the site shows."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: Any) -> None:  # noqa: ARG002
        """Called for each object once it is known."""
        if obj.docstring:
            obj.docstring.value = as_list(obj.docstring.value)
