"""Objects of answers, as pydantic models: they make the JSON, and describe it for OpenAPI."""

from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field

T = TypeVar("T")

Maybe = Annotated[T | None, Field(exclude_if=lambda value: value is None)]
"""A field that is left out rather than null."""

Empty = tuple[()]
"""A list that is always empty here."""


class Part(BaseModel):
    """An object, with these fields and no others."""

    model_config = ConfigDict(extra="forbid", json_schema_serialization_defaults_required=True)
