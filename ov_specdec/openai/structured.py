"""Structured output in requests: OpenAI's `response_format`, and vLLM's `structured_outputs`."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from ov_specdec.openai.body import Body, NeutralValues
from ov_specdec.openai.errors import invalid, said, show
from ov_specdec.options.structured import CONSTRAINTS

FormatType = Literal["text", "json_object", "json_schema"]


class NamedSchema(Body):
    """A JSON schema. Its name and `strict` change nothing: a schema always holds."""

    name: str | None = None
    description: str | None = None
    strict: bool | None = None
    content: dict[str, Any] | None = Field(None, alias="schema")


class TextFormat(NamedSchema):
    """The format of a response."""

    neutral_values: ClassVar[NeutralValues] = {"json_schema": ()}

    type: FormatType


class ResponseFormat(Body):
    """The format of another answer, where the schema is nested."""

    neutral_values: ClassVar[NeutralValues] = {"schema": ()}

    type: FormatType
    json_schema: NamedSchema | None = None


class TextOptions(Body):
    """Settings of the text of a response. verbosity: taken, without an effect."""

    format: TextFormat | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


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
