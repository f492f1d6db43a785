"""Tools of requests, and choices of them, as options of a generation."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Discriminator, Tag, model_validator

from ov_specdec.openai.body import Loose, kind_of, said
from ov_specdec.openai.errors import invalid, show
from ov_specdec.options.tools import definition_of

OWN = ("<function>", "<custom>", "<namespace>")
"""Kinds of tools that a model can be given; the others are run by OpenAI only."""


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


class FunctionTool(Function):
    """A function of /v1/responses."""

    type: Literal["function"]


class AnyText(Loose):
    """The format of any text."""

    type: Literal["text"]


class GrammarText(Loose):
    """The format of a text that fits a grammar."""

    type: Literal["grammar"]
    syntax: Literal["lark", "regex"]
    definition: str


class CustomTool(Loose):
    """A tool of /v1/responses whose input is a text."""

    type: Literal["custom"]
    name: str
    description: str | None = None
    format: Annotated[AnyText | GrammarText, said("a text, or a lark or regex grammar")] | None = (
        None
    )


NamedTool = Annotated[FunctionTool, Tag("<function>")] | Annotated[CustomTool, Tag("<custom>")]


class Namespace(Loose):
    """Tools of /v1/responses under a name, such as those of an MCP server."""

    type: Literal["namespace"]
    name: str
    tools: list[
        Annotated[NamedTool, Discriminator(kind_of, "kind", "must have the type function or custom")]
    ]


class HostedTool(Loose):
    """A tool that only OpenAI runs."""

    type: str


ResponseTool = Annotated[
    NamedTool | Annotated[Namespace, Tag("<namespace>")] | Annotated[HostedTool, Tag("<hosted>")],
    Discriminator(lambda tool: kind if (kind := kind_of(tool)) in OWN else "<hosted>"),
]


class ToolName(NamedTuple):
    """What a tool of /v1/responses is called in its items."""

    type: Literal["function", "custom"]
    name: str
    namespace: str | None = None

    @property
    def flat(self) -> str:
        """What the model calls it."""
        return flat_name(self.name, self.namespace)


def flat_name(name: str, namespace: str | None) -> str:
    """What the model calls a tool, which is as in Codex."""
    return name if namespace is None else f"{namespace.rstrip('_')}__{name.lstrip('_')}"


def flatten(tools: Iterable[ResponseTool]) -> list[tuple[ToolName, FunctionTool | CustomTool]]:
    """The tools with their names, without those that only OpenAI runs."""
    found = []
    for tool in tools:
        if isinstance(tool, Namespace):
            found += [(ToolName(each.type, each.name, tool.name), each) for each in tool.tools]
        elif not isinstance(tool, HostedTool):
            found.append((ToolName(tool.type, tool.name), tool))
    return found


def as_option(tool: Function | CustomTool, name: str) -> dict[str, Any]:
    """A tool as the option has it. name: what the model calls it."""
    if isinstance(tool, Function):
        known = tool.model_dump(include={*Function.model_fields}, exclude_none=True)
        return {"type": "function", "function": {**known, "name": name}}
    custom: dict[str, Any] = {"name": name, "description": tool.description or ""}
    if isinstance(tool.format, GrammarText):
        grammar = {"syntax": tool.format.syntax, "definition": tool.format.definition}
        custom["format"] = {"type": "grammar", "grammar": grammar}
    return {"type": "custom", "custom": custom}


class NamedChoice(Loose):
    """A choice of one tool, or of those that are allowed."""

    type: Literal["function", "custom", "allowed_tools"]
    name: str = ""
    namespace: str | None = None
    mode: Literal["auto", "required"] = "auto"
    tools: list["NamedChoice"] = []

    @model_validator(mode="before")
    @classmethod
    def _lift(cls, given: Any) -> Any:
        """Chat completions nest the fields in one that is named like the type."""
        nested = given.get(str(given.get("type"))) if isinstance(given, Mapping) else None
        return {**given, **nested} if isinstance(nested, Mapping) else given

    @property
    def flat(self) -> str:
        """What the model calls the tool."""
        return flat_name(self.name, self.namespace)


ToolChoice = Annotated[
    Literal["none", "auto", "required"] | NamedChoice,
    said("none, auto, required, a tool by type and name, or allowed_tools"),
]


def read_tools(
    tools: Sequence[Mapping[str, Any]],
    choice: Literal["none", "auto", "required"] | NamedChoice | None,
    parallel: bool | None,
) -> dict[str, Any]:
    """The options of tools, by name; none without tools, unless a choice needs some.

    Tools that are not allowed are left out. `ApiError` for unknown ones that are.
    """
    chosen: Any = choice
    if isinstance(choice, NamedChoice):
        chosen = {"type": choice.type, choice.type: {"name": choice.flat}}
        if choice.type == "allowed_tools":
            chosen, allowed = choice.mode, {each.flat for each in choice.tools}
            if unknown := allowed - {definition_of(tool)["name"] for tool in tools}:
                reason = f"tool_choice allows {show(min(unknown))}, which tools does not have"
                raise invalid("tool_choice", f"{reason}: leave it out")
            tools = [tool for tool in tools if definition_of(tool)["name"] in allowed]
    if not tools and chosen in (None, "none", "auto"):
        return {}
    given = {"tools": tools, "tool_choice": chosen, "parallel_tool_calls": parallel}
    return {name: value for name, value in given.items() if value is not None}
