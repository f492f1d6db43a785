"""Messages and items of requests as messages of chat templates."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, Field
from pydantic_core import from_json

from ov_specdec.errors import OptionError
from ov_specdec.openai.body import Loose, check_size
from ov_specdec.openai.errors import invalid, said
from ov_specdec.openai.structured import CallType, flat_name
from ov_specdec.text.chat import check_messages

UNENCRYPTED = "plain:"
"""Begins an `encrypted_content` of ours: the reasoning as it is, for clients that return only this.
That of others cannot be read."""

REASONING = ("reasoning", "reasoning_content")
"""Where templates look for the reasoning of a message."""

ItemType = Literal["message", "reasoning", CallType]
OutputType = Literal["function_call_output", "custom_tool_call_output"]


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


NEEDED: Mapping[str, tuple[str, ...]] = {
    "message": ("role", "content"),
    "function_call": ("call_id", "name", "arguments"),
    "custom_tool_call": ("call_id", "name", "input"),
    **dict.fromkeys(get_args(OutputType), ("call_id", "output")),
}
"""The fields that items of a type need."""


class InputItem(Loose):
    """An item of /v1/responses: a message, another part of an answer, or what a call gave."""

    type: Literal[ItemType, OutputType] = "message"
    role: Annotated[str, Field(min_length=1)] | None = None
    content: Content | None = None
    call_id: str | None = None
    name: str | None = None
    namespace: str | None = None
    arguments: Arguments | None = None
    input: str | None = None
    output: Content | None = None
    encrypted_content: str | None = None

    def for_template(self, where: str) -> dict[str, Any]:
        """A message of this alone, if it says anything. where: its path, for errors."""
        for name in NEEDED.get(self.type, ()):
            if getattr(self, name) is None:
                raise invalid(f"{where}.{name}", f"{where}.{name} is missing: give it")
        if self.type == "message":
            return Message(role=self.role or "", content=self.content).for_template()
        if self.type in get_args(OutputType):
            output = text_parts(self.output)
            return {"role": "tool", "tool_call_id": self.call_id, "content": output}
        if self.type == "reasoning":
            parts = self.content if isinstance(self.content, list) else ()
            _, _, kept = (self.encrypted_content or "").partition(UNENCRYPTED)
            text = "".join(part.text for part in parts) or kept
            return {"role": "assistant", **dict.fromkeys(REASONING, text)} if text else {}
        name = flat_name(self.name or "", self.namespace)
        arguments = self.arguments if self.type == "function_call" else {"input": self.input}
        return {"role": "assistant", "tool_calls": [called(self.call_id, name, arguments)]}


Messages = Annotated[list[Message], Field(min_length=1, fail_fast=True)]
Items = Annotated[list[InputItem], Field(min_length=1, fail_fast=True)]


def read_items(items: Iterable[InputItem]) -> list[dict[str, Any]]:
    """Messages for a chat template, where the items of one turn of the model are one."""
    joined: list[tuple[str, dict[str, Any]]] = []
    for index, item in enumerate(items):
        path, (_, last) = f"input[{index}]", joined[-1] if joined else ("", {})
        message = item.for_template(path)
        if not message.get("role") == last.get("role") == "assistant":
            joined += [(path, message)] * bool(message)
        elif "tool_calls" in message:
            last.setdefault("tool_calls", []).extend(message["tool_calls"])
        elif "content" in message and not {"content", "tool_calls"} & last.keys():
            last["content"] = message["content"]
        else:
            joined.append((path, message))
    messages = [{"content": "", **message} for _, message in joined]
    return read_messages(messages, [path for path, _ in joined])


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
