"""Messages of requests as messages of chat templates, and the functions that they may call."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field
from pydantic_core import from_json

from ov_specdec.api.body import Loose, check_size
from ov_specdec.api.errors import invalid, said
from ov_specdec.errors import OptionError
from ov_specdec.text.chat_template import check_messages

REASONING = ("reasoning", "reasoning_content")
"""Where templates look for the reasoning of a message."""


class TextPart(Loose):
    """A part of a content. The last three types are those of /v1/responses."""

    type: Literal["text", "input_text", "output_text", "reasoning_text"]
    text: str


Content = Annotated[
    str | Annotated[list[TextPart], Field(fail_fast=True)],
    said("a text or a list of parts with text"),
]


def _read_arguments(given: Any) -> Any:
    """Arguments as a mapping; no text is none."""
    return from_json(given or "{}", allow_inf_nan=False) if isinstance(given, str) else given


Arguments = Annotated[
    dict[str, Any],
    BeforeValidator(_read_arguments, json_schema_input_type=str | dict[str, Any]),
    said("a JSON object or the text of one"),
]


def require(item: BaseModel, names: Iterable[str], where: str) -> None:
    """Refuse an item without one of these fields. where: its path."""
    for name in names:
        if getattr(item, name) is None:
            raise invalid(f"{where}.{name}", f"{where}.{name} is missing: give it")


def called(call_id: str | None, name: str, arguments: Mapping[str, Any] | None) -> dict[str, Any]:
    """A call as templates take it."""
    function = {"name": name, "arguments": arguments}
    return {"type": "function", "function": function, **({"id": call_id} if call_id else {})}


def text_parts(content: str | list[TextPart] | None) -> Any:
    """A content as templates name its parts."""
    if not isinstance(content, list):
        return content
    return [{"type": "text", "text": part.text} for part in content]


class CalledFunction(Loose):
    """The function of a call."""

    name: str
    arguments: Arguments


class Call(Loose):
    """A call of a tool in a message."""

    id: str | None = None
    type: Literal["function"] | None = None
    function: CalledFunction


class Message(Loose):
    """A message. Chat templates may use further fields."""

    role: Annotated[str, Field(min_length=1)]
    content: Content | None = None
    tool_calls: Annotated[list[Call], Field(fail_fast=True)] | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None

    def for_template(self) -> dict[str, Any]:
        """The message without null fields, and with those that templates look for."""
        reasoning, content = self.reasoning_content or self.reasoning, text_parts(self.content)
        calls = [
            called(call.id, call.function.name, call.function.arguments)
            for call in self.tool_calls or ()
        ]
        given = {
            # OpenAI's interface has a newer name of this role, templates the older one.
            "role": "system" if self.role == "developer" else self.role,
            **dict.fromkeys(REASONING, reasoning or None),
            "content": "" if content is None and (reasoning or calls) else content,
            "tool_calls": calls or None,
            **(self.model_extra or {}),
        }
        return {name: value for name, value in given.items() if value is not None}


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


Messages = Annotated[list[Message], Field(min_length=1, fail_fast=True)]


def read_messages(
    messages: list[dict[str, Any]], paths: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """Messages for a chat template; `ApiError` for an invalid one. paths: see `check_messages`."""
    calls = (call for message in messages for call in message.get("tool_calls", ()))
    check_size([call["function"]["arguments"] for call in calls])  # which were texts
    try:
        return check_messages(messages, paths)
    except OptionError as error:
        raise invalid(error.option, str(error)) from error
