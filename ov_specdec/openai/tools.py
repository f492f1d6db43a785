"""Tools of requests as options of a generation."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from ov_specdec.openai.body import Loose

CallType = Literal["function_call", "custom_tool_call"]

TYPES: Mapping[str, CallType] = {"function": "function_call", "custom": "custom_tool_call"}
"""The items of calls, by the type of their tool."""


def flat_name(name: str, namespace: str | None) -> str:
    """What the model calls a tool, as in Codex."""
    return name if namespace is None else f"{namespace.rstrip('_')}__{name.lstrip('_')}"


class Function(Loose):
    """A function. strict: refuse a schema of which a part cannot be enforced."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class ChatTool(Loose):
    """A tool of /v1/chat/completions."""

    type: Literal["function"]
    function: Function


class CustomFormat(Loose):
    """What the input of a custom tool has to fit."""

    type: Literal["text", "grammar"]
    syntax: Literal["lark", "regex"] = "lark"
    definition: str = ""


class ResponseTool(Function):
    """A tool of /v1/responses. tools: of a namespace."""

    type: str
    name: str = ""
    format: CustomFormat | None = None
    tools: list["ResponseTool"] = Field([])

    @property
    def is_hosted(self) -> bool:
        """Whether only OpenAI runs it."""
        return self.type not in TYPES and not self.tools

    def flatten(self, namespace: str | None = None) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """The fields of items that call it, and what the model gets, as in chat completions."""
        if self.type not in TYPES:
            return [found for tool in self.tools for found in tool.flatten(self.name)]
        names = ["name", "description", *["parameters", "strict"] * (self.type == "function")]
        own = self.model_dump(include={*names}, exclude_none=True)
        if self.format is not None and self.format.type == "grammar":
            own["format"] = {"grammar": self.format.model_dump(include={"syntax", "definition"})}
        own["name"] = flat_name(self.name, namespace)
        fields = {"type": TYPES[self.type], "name": self.name}
        if namespace is not None:
            fields["namespace"] = namespace
        return [(fields, {"type": self.type, self.type: own})]
