"""Messages of requests: convert OpenAI's shapes to those of chat templates."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from ov_specdec.errors import OptionError
from ov_specdec.openai.errors import invalid
from ov_specdec.openai.fields import said
from ov_specdec.text.chat import check_messages

TextType = Literal["text", "input_text", "output_text"]
"""Types of the parts of a content that are text; the last two are those of /v1/responses."""

OF_ANSWERS = ("annotations", "id", "logprobs", "status", "type")
"""Fields of an answer that a client sends back as input; templates do not use them."""


class TextPart(BaseModel):
    """A part of a content."""

    model_config = ConfigDict(strict=True, extra="allow")

    type: TextType
    text: str


Content = Annotated[
    str | Annotated[list[TextPart], Field(fail_fast=True)],
    said("a text or a list of parts with text"),
]


class Message(BaseModel):
    """A message. Chat templates may use further fields."""

    model_config = ConfigDict(strict=True, extra="allow")

    role: Annotated[str, Field(min_length=1)]
    content: Content | None = None

    def given(self) -> dict[str, Any]:
        """The message without null fields, and the parts of its content as templates name them."""
        content: Any = self.content
        if isinstance(content, list):
            content = [{"type": "text", "text": part.text} for part in content]
        # OpenAI's interface has a newer name of this role, templates the older one.
        role = "system" if self.role == "developer" else self.role
        given = {"role": role, "content": content, **(self.model_extra or {})}
        return {name: value for name, value in given.items() if value is not None}


class InputMessage(Message):
    """A message of /v1/responses, which may be an earlier answer."""

    type: Literal["message"] = "message"

    def given(self) -> dict[str, Any]:
        """The fields for a template."""
        return {k: v for k, v in super().given().items() if k not in OF_ANSWERS}


Messages = Annotated[list[Message], Field(min_length=1, fail_fast=True)]


def join(content: str | list[TextPart]) -> str:
    """A content as one text; its parts are lines."""
    return content if isinstance(content, str) else "\n".join(part.text for part in content)


def read_messages(messages: list[Any], name: str = "messages") -> list[dict[str, Any]]:
    """Messages for a chat template; `ApiError` for an empty one. name: of their field."""
    try:
        return check_messages([message.given() for message in messages], name)
    except OptionError as error:
        raise invalid(error.option, str(error)) from error
