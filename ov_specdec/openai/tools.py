"""Tools of requests, and choices of them, as options of a generation."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, model_validator

from ov_specdec.openai.body import Loose, said
from ov_specdec.openai.errors import invalid, show
from ov_specdec.options.tools import definition_of


class ToolName(NamedTuple):
    """What a tool of /v1/responses is called in its items."""

    type: str
    name: str
    namespace: str | None


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

    def as_option(self) -> dict[str, Any]:
        """The tool without fields that are not used."""
        return {"type": self.type, "function": self.function.only(*Function.model_fields)}


class CustomFormat(Loose):
    """What the input of a custom tool has to fit."""

    type: Literal["text", "grammar"]
    syntax: Literal["lark", "regex"] = "lark"
    definition: str = ""


class ResponseTool(Function):
    """A tool of /v1/responses: a function, a custom tool, or a namespace of both.

    Tools of other types are run by OpenAI only.
    """

    type: str
    name: str = ""
    format: CustomFormat | None = None
    tools: list["ResponseTool"] = Field([])

    @property
    def is_hosted(self) -> bool:
        """Whether only OpenAI runs it."""
        return self.type not in ("function", "custom", "namespace")

    def flatten(self, namespace: str | None = None) -> list[tuple[ToolName, dict[str, Any]]]:
        """The tools that it stands for, with their names, as in chat completions."""
        if self.type == "namespace":
            return [found for tool in self.tools for found in tool.flatten(self.name)]
        if self.is_hosted:
            return []
        name, own = ToolName(self.type, self.name, namespace), self.only(*Function.model_fields)
        flat = flat_name(self.name, namespace)
        if self.type == "custom":
            own = {"description": self.description or ""}
            if self.format is not None and self.format.type == "grammar":
                grammar = self.format.only("syntax", "definition")
                own["format"] = {"type": "grammar", "grammar": grammar}
        return [(name, {"type": self.type, self.type: {**own, "name": flat}})]


class NamedChoice(Loose):
    """A choice of one tool, or of those that are allowed."""

    type: Literal["function", "custom", "allowed_tools"]
    name: str = ""
    namespace: str | None = None
    mode: Literal["auto", "required"] = "auto"
    tools: list["NamedChoice"] = Field([])

    @model_validator(mode="before")
    @classmethod
    def _lift(cls, given: Any) -> Any:
        """Chat completions nest the fields in one that is named like the type."""
        nested = given.get(str(given.get("type"))) if isinstance(given, Mapping) else None
        return {**given, **nested} if isinstance(nested, Mapping) else given


Choice = Literal["none", "auto", "required"] | NamedChoice
ToolChoice = Annotated[
    Choice, said("none, auto, required, a tool by type and name, or allowed_tools")
]


def read_tools(
    tools: Sequence[Mapping[str, Any]], choice: Choice | None, parallel: bool | None
) -> dict[str, Any]:
    """The options of tools, by name; without tools none, unless a choice needs some."""
    chosen: Any = choice
    if isinstance(choice, NamedChoice):
        chosen = flat_name(choice.name, choice.namespace)
        if choice.type == "allowed_tools":
            chosen, names = choice.mode, [definition_of(tool)["name"] for tool in tools]
            allowed = {flat_name(each.name, each.namespace) for each in choice.tools}
            if unknown := allowed.difference(names):
                reason = f"tool_choice allows {show(min(unknown))}, which tools does not have"
                raise invalid("tool_choice", f"{reason}: leave it out")
            tools = [tool for tool, name in zip(tools, names, strict=True) if name in allowed]
    if not tools and chosen in (None, "none", "auto"):
        return {}
    given = {"tools": tools, "tool_choice": chosen, "parallel_tool_calls": parallel}
    return {name: value for name, value in given.items() if value is not None}
