"""Messages and items of requests as messages of chat templates."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag
from pydantic_core import PydanticCustomError, from_json

from ov_specdec.errors import OptionError
from ov_specdec.openai.body import Loose, check_size, kind_of, said
from ov_specdec.openai.errors import invalid
from ov_specdec.openai.tools import flat_name
from ov_specdec.text.chat import check_messages

PLAIN = "plain:"
"""Begins an `encrypted_content` of ours: the reasoning as it is, for clients that return only this.
That of others cannot be read."""


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
    if not isinstance(given, str):
        return given
    try:
        return from_json(given or "{}", allow_inf_nan=False)
    except ValueError as error:
        raise PydanticCustomError("json", "is not JSON: {reason}", {"reason": f"{error}"}) from error


Arguments = Annotated[
    dict[str, Any],
    BeforeValidator(_read_arguments, json_schema_input_type=str | dict[str, Any]),
]


def called(call_id: str | None, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """A call as templates take it."""
    function = {"name": name, "arguments": arguments}
    return {"type": "function", "function": function, **({"id": call_id} if call_id else {})}


def _parts(content: str | list[TextPart] | None) -> Any:
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

    def given(self) -> dict[str, Any]:
        """The call as templates take it."""
        return called(self.id, self.function.name, self.function.arguments)


class Message(Loose):
    """A message. Chat templates may use further fields."""

    role: Annotated[str, Field(min_length=1)]
    content: Content | None = None
    tool_calls: Annotated[list[Call], Field(fail_fast=True)] | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None

    def given(self) -> dict[str, Any]:
        """The message without null fields, and the parts of its content as templates name them."""
        given = {
            # OpenAI's interface has a newer name of this role, templates the older one.
            "role": "system" if self.role == "developer" else self.role,
            "reasoning_content": self.reasoning_content or self.reasoning,
            "content": _parts(self.content),
            "tool_calls": [call.given() for call in self.tool_calls or ()] or None,
            **(self.model_extra or {}),
        }
        return {name: value for name, value in given.items() if value is not None}


class InputMessage(Message):
    """A message of /v1/responses, which may be an earlier answer."""

    type: Literal["message"] = "message"
    content: Content

    def given(self) -> dict[str, Any]:
        """The fields for a template, which uses none of those of an answer."""
        unused = ("annotations", "id", "logprobs", "phase", "status", "type")
        return {k: v for k, v in super().given().items() if k not in unused}


class InputReasoning(Loose):
    """The reasoning of an earlier answer."""

    type: Literal["reasoning"]
    content: Content | None = None
    encrypted_content: str | None = None

    def given(self) -> dict[str, Any]:
        """A message of this alone."""
        parts, kept = self.content or "", self.encrypted_content or ""
        text = parts if isinstance(parts, str) else "".join(part.text for part in parts)
        text = text or kept.removeprefix(PLAIN) * kept.startswith(PLAIN)
        return {"role": "assistant", **({"reasoning_content": text} if text else {})}


class InputCall(Loose):
    """A call of an earlier answer."""

    type: Literal["function_call"]
    call_id: str
    name: str
    namespace: str | None = None
    arguments: Arguments

    def given(self) -> dict[str, Any]:
        """A message of this alone."""
        call = called(self.call_id, flat_name(self.name, self.namespace), self.arguments)
        return {"role": "assistant", "tool_calls": [call]}


class InputCustomCall(Loose):
    """A call of a custom tool of an earlier answer."""

    type: Literal["custom_tool_call"]
    call_id: str
    name: str
    namespace: str | None = None
    input: str

    def given(self) -> dict[str, Any]:
        """A message of this alone."""
        call = called(self.call_id, flat_name(self.name, self.namespace), {"input": self.input})
        return {"role": "assistant", "tool_calls": [call]}


class InputOutput(Loose):
    """What a call gave."""

    type: Literal["function_call_output", "custom_tool_call_output"]
    call_id: str
    output: Content

    def given(self) -> dict[str, Any]:
        """The message of the tool."""
        return {"role": "tool", "tool_call_id": self.call_id, "content": _parts(self.output)}


InputItem = Annotated[
    Annotated[InputMessage, Tag("<message>")]
    | Annotated[InputReasoning, Tag("<reasoning>")]
    | Annotated[InputCall, Tag("<function_call>")]
    | Annotated[InputCustomCall, Tag("<custom_tool_call>")]
    | Annotated[InputOutput, Tag("<function_call_output>")]
    | Annotated[InputOutput, Tag("<custom_tool_call_output>")],
    Discriminator(
        lambda item: "<message>" if (kind := kind_of(item)) == "<None>" else kind,
        "kind",
        "must be a message, a reasoning, or the call of a function or custom tool or its output",
    ),
]

Messages = Annotated[list[Message], Field(min_length=1, fail_fast=True)]
Items = Annotated[list[InputItem], Field(min_length=1, fail_fast=True)]

IN_ORDER = ("reasoning_content", "content", "tool_calls")
"""What one turn of a model may have."""


def join_turns(messages: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages of items, of which those of one turn of the model become one."""
    joined: list[dict[str, Any]] = []
    for message in messages:
        last = joined[-1] if joined else {}
        own = [name for name in IN_ORDER if name in message]
        is_call = own == ["tool_calls"]
        later = () if is_call or not own else IN_ORDER[IN_ORDER.index(own[0]) :]
        if message["role"] != "assistant" or last.get("role") != "assistant" or {*later} & {*last}:
            joined.append(message)
        elif is_call:
            last["tool_calls"] = [*last.get("tool_calls", ()), *message["tool_calls"]]
        else:
            last.update(message)
    return joined


def read_messages(messages: Iterable[dict[str, Any]], name: str = "messages") -> list[dict[str, Any]]:
    """Messages for a chat template; `ApiError` for an invalid one. name: of their field."""
    given = [_complete(message) for message in messages]
    check_size(given)  # arguments were texts
    try:
        return check_messages(given, name)
    except OptionError as error:
        raise invalid(error.option, str(error)) from error


def _complete(message: dict[str, Any]) -> dict[str, Any]:
    """A message in which templates find the reasoning by any name, and a content beside calls."""
    more: dict[str, Any] = {}
    if reasoning := message.get("reasoning_content"):
        more["reasoning"] = reasoning
    if reasoning or message.get("tool_calls"):
        more["content"] = message.get("content", "")
    return {**message, **more}
