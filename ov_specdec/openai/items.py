"""Items of /v1/responses as messages of chat templates."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import Field

from ov_specdec.api.body import Loose
from ov_specdec.api.messages import (
    REASONING,
    Arguments,
    Content,
    Message,
    called,
    read_messages,
    require,
    text_parts,
)
from ov_specdec.openai.structured import CallType, flat_name

UNENCRYPTED = "plain:"
"""Begins an `encrypted_content` of ours: the reasoning as it is, for clients that return only this.
That of others cannot be read."""

ItemType = Literal["message", "reasoning", CallType]
OutputType = Literal["function_call_output", "custom_tool_call_output"]


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
        require(self, NEEDED.get(self.type, ()), where)
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
