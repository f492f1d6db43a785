"""Structured output in requests: OpenAI's `response_format`, vLLM's `structured_outputs`; tools."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from ov_specdec.api.body import Body, Loose, NeutralValues, Refused
from ov_specdec.api.errors import invalid, said, show
from ov_specdec.api.messages import Function
from ov_specdec.options.conflicts import CONSTRAINTS

Verbosity = Literal["low", "medium", "high"]
FormatType = Literal["text", "json_object", "json_schema"]
CallType = Literal["function_call", "custom_tool_call"]

CALL_TYPES: Mapping[str, CallType] = {"function": "function_call", "custom": "custom_tool_call"}
"""The items of calls, by the type of their tool."""


class NamedSchema(Body):
    """A JSON schema. Its name and `strict` change nothing: a schema always holds."""

    name: str | None = None
    description: str | None = None
    strict: bool | None = None
    content: dict[str, Any] | None = Field(None, alias="schema")


class TextFormat(NamedSchema):
    """The format of a response."""

    neutral_values: ClassVar[NeutralValues] = {"json_schema": Refused("give text.format.schema")}

    type: FormatType


class ResponseFormat(Body):
    """The format of another answer, where the schema is nested."""

    neutral_values: ClassVar[NeutralValues] = {
        "schema": Refused("give response_format.json_schema.schema, with the type json_schema")
    }

    type: FormatType
    json_schema: NamedSchema | None = None


class TextOptions(Body):
    """Settings of the text of a response. verbosity: taken, without an effect."""

    format: TextFormat | None = None
    verbosity: Verbosity | None = None


class StructuredOutputs(Body):
    """What the output has to fit, one of these."""

    neutral_values: ClassVar[NeutralValues] = {
        **dict.fromkeys(("structural_tag", "whitespace_pattern"), ()),
        **dict.fromkeys(("disable_additional_properties", "disable_fallback"), (False,)),
        "disable_any_whitespace": (True, False),  # json_whitespace is compact by default
    }

    option_names = CONSTRAINTS

    json_schema: Annotated[dict[str, Any] | str, said("a JSON schema")] | None = Field(
        None, alias="json"
    )
    json_object: bool | None = None
    regex: str | None = None
    choices: list[str] | None = Field(None, min_length=1, max_length=20_000, alias="choice")
    grammar: str | None = None

    @property
    def names(self) -> dict[str, str]:
        """The given fields by their options."""
        fields = StructuredOutputs.model_fields
        given = {name: fields[name].alias or name for name in self.given_options}
        return {name: f"structured_outputs.{field}" for name, field in given.items()}


def read_structure(
    form: TextFormat | ResponseFormat | None, outputs: StructuredOutputs | None
) -> dict[str, Any]:
    """The options of structured output, by name."""
    options = {} if outputs is None else outputs.given_options
    if outputs is not None and not options:
        raise invalid("structured_outputs", "structured_outputs is empty: leave it out")
    if form is None:
        return options
    schema: NamedSchema | None
    if isinstance(form, ResponseFormat):
        field, where, schema = "response_format", "response_format.json_schema", form.json_schema
    else:
        field, where = "text.format", "text.format.schema"
        schema = None if form.content is None else form
    if form.type == "json_schema":
        if schema is None or schema.content is None:
            raise invalid(field, "the format has no schema: give it one")
        if "json_schema" in options:
            raise invalid(field, f"{field} contradicts structured_outputs.json: leave out one")
        options["json_schema"] = schema.content
    elif schema is not None:
        problem = f"{where} contradicts {field}.type={show(form.type)}"
        raise invalid(where, f"{problem}: give the type json_schema, or leave it out")
    elif form.type == "json_object":
        options["json_object"] = True
    return options


def flat_name(name: str, namespace: str | None) -> str:
    """What the model calls a tool, as in Codex."""
    return name if namespace is None else f"{namespace.rstrip('_')}__{name.lstrip('_')}"


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
        return self.type not in CALL_TYPES and not self.tools

    def flatten(self, namespace: str | None = None) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """The fields of items that call it, and what the model gets, as in chat completions."""
        if self.type not in CALL_TYPES:
            return [found for tool in self.tools for found in tool.flatten(self.name)]
        names = ["name", "description", *["parameters", "strict"] * (self.type == "function")]
        own = self.model_dump(include={*names}, exclude_none=True)
        if self.format is not None and self.format.type == "grammar":
            own["format"] = {"grammar": self.format.model_dump(include={"syntax", "definition"})}
        own["name"] = flat_name(self.name, namespace)
        fields = {"type": CALL_TYPES[self.type], "name": self.name}
        if namespace is not None:
            fields["namespace"] = namespace
        return [(fields, {"type": self.type, self.type: own})]
