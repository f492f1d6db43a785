"""Messages of requests, as chat templates take them."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from ov_specdec.errors import OptionError
from ov_specdec.openai.body import said
from ov_specdec.openai.errors import invalid
from ov_specdec.text.chat import check_messages


class TextPart(BaseModel):
    """A part of a content."""

    model_config = ConfigDict(strict=True, extra="allow")

    type: Literal["text", "input_text", "output_text"]  # the last two in /v1/responses
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
        """The fields for a template, which uses none of those of an answer."""
        unused = ("annotations", "id", "logprobs", "status", "type")
        return {k: v for k, v in super().given().items() if k not in unused}


Messages = Annotated[list[Message], Field(min_length=1, fail_fast=True)]


def read_messages(messages: list[Any], name: str = "messages") -> list[dict[str, Any]]:
    """Messages for a chat template; `ApiError` for an empty one. name: of their field."""
    try:
        return check_messages([message.given() for message in messages], name)
    except OptionError as error:
        raise invalid(error.option, str(error)) from error
