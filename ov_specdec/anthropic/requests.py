"""Requests of /v1/messages: their fields, and the messages and options that are read from them."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from ov_specdec.api.body import (
    Body,
    GenerationBody,
    Loose,
    NeutralValues,
    Refused,
    UnknownFields,
    with_options,
)
from ov_specdec.api.dialect import Query, Served
from ov_specdec.api.errors import Json, invalid
from ov_specdec.api.messages import REASONING, Function, called, read_messages, require, text_parts
from ov_specdec.options.generation import GenerationOptions
from ov_specdec.text.chat_template import ROLE_ELSE
from ov_specdec.text.prompt import Prompt

BILLING = re.compile(r"\Ax-anthropic-billing-header:.*\n*")
"""Begins a block of Claude Code that is another one in each request: no prefix would be reused."""

NEEDED: Mapping[str, tuple[str, ...]] = {
    "text": ("text",),
    "thinking": ("thinking",),
    "tool_use": ("id", "name", "input"),
    "tool_result": ("tool_use_id",),
}
"""The fields that blocks of a type need."""

OF_ROLE = {"tool_result": "user", **dict.fromkeys(("tool_use", "thinking"), "assistant")}
"""Who alone has blocks of a type."""


def _as_blocks(given: object) -> object:
    """A text as a block."""
    return [{"type": "text", "text": given}] if isinstance(given, str) else given


def _as_served(name: str | None) -> str | None:
    return None if (name or "").startswith("claude-") else name


class TextBlock(Loose):
    """A block of a system prompt or of a result. tool_reference: left out."""

    type: Literal["text", "tool_reference"]
    text: str = ""


TextBlocks = Annotated[
    list[TextBlock],
    Field(fail_fast=True),
    BeforeValidator(_as_blocks, json_schema_input_type=str | list[TextBlock]),
]


class Block(Loose):
    """A block of a message. redacted_thinking: left out, as are signatures."""

    type: Literal["text", "thinking", "redacted_thinking", "tool_use", "tool_result"]
    text: str | None = None
    thinking: str | None = None
    id: str | None = None
    name: str | None = None
    input: dict[str, Any] | None = None
    tool_use_id: str | None = None
    content: TextBlocks | None = None


class Turn(Loose):
    """A message. A role of neither the user nor the assistant counts as system, in its place.

    Where a template takes the system only at the begin, it is the user's.
    """

    role: Annotated[str, Field(min_length=1)]
    content: Annotated[
        list[Block],
        Field(fail_fast=True),
        BeforeValidator(_as_blocks, json_schema_input_type=str | list[Block]),
    ]

    def for_template(self, where: str) -> list[Json]:
        """Results of tools, and a message with all else. where: its path, for errors."""
        for index, block in enumerate(self.content):
            path = f"{where}.content[{index}]"
            require(block, NEEDED.get(block.type, ()), path)
            if (role := OF_ROLE.get(block.type, self.role)) != self.role:
                reason = f"{path}.type={block.type!r} is only for the {role}: change the role"
                raise invalid(f"{path}.type", reason)
        of = {kind: [b for b in self.content if b.type == kind] for kind in NEEDED}
        results = [
            {"role": "tool", "tool_call_id": each.tool_use_id, "content": content_of(each.content)}
            for each in of["tool_result"]
        ]
        own: Json = {"role": self.role, "content": content_of(of["text"])}
        if self.role not in ("user", "assistant"):
            own |= {"role": "system", ROLE_ELSE: "user"}
        if thoughts := "".join(each.thinking or "" for each in of["thinking"]):
            own |= dict.fromkeys(REASONING, thoughts)
        if of["tool_use"]:
            calls = ((each.id, each.name or "", each.input) for each in of["tool_use"])
            own["tool_calls"] = [called(*call) for call in calls]
        return results if results and not of["text"] else [*results, own]


def content_of(blocks: Any) -> Any:
    """The texts of blocks as a content of templates: one is a text."""
    texts = [block for block in blocks or () if block.type == "text"]
    return text_parts(texts) if len(texts) > 1 else "".join(block.text for block in texts)


class Tool(Function):
    """A tool. Those of other types than custom run at Anthropic."""

    type: str = "custom"
    parameters: dict[str, Any] | None = Field(None, alias="input_schema")


class ToolChoice(Body):
    """Whether tools are called. name: of the one that is."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class Thinking(Body):
    """Whether the model reasons; adaptive leaves it to the model. display: changes nothing."""

    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: Annotated[int, Field(ge=0)] | None = None
    display: str | None = None


class OutputFormat(Body):
    """What the text has to fit."""

    type: Literal["json_schema"]
    content: dict[str, Any] = Field(alias="schema")


class OutputConfig(Body):
    """How much is thought, in words of the chat template, and the format of the text."""

    effort: str | None = None
    format: OutputFormat | None = None


@with_options(
    GenerationOptions,
    (
        *("temperature", "top_k", "top_p", "min_p", "seed", "logit_bias", "repetition_penalty"),
        *("presence_penalty", "frequency_penalty"),
        *("stop_strings", "cache_salt", "chat_template_kwargs"),
    ),
    stop_strings="stop_sequences",
)
class Conversation(Body):
    """What /v1/messages and its count of tokens have in common."""

    fields: ClassVar[Mapping[str, str]] = {
        **Body.fields,
        "continue_final_message": "messages",
        "json_schema": "output_config.format",
        "max_new_tokens": "max_tokens",
        "parallel_tool_calls": "tool_choice.disable_parallel_tool_use",
        "reasoning_effort": "output_config.effort",
        "thinking_token_budget": "thinking.budget_tokens",
    }
    ignored = ("cache_control", "container", "context_management", "metadata", "service_tier")
    neutral_values: ClassVar[NeutralValues] = {
        "mcp_servers": ([],),
        "n": (1,),
        "response_format": Refused("give output_config.format"),
        "stop": Refused("give stop_sequences"),
        "output_format": Refused("give output_config.format"),
    }

    model: Annotated[str | None, AfterValidator(_as_served)] = Field(
        None, description="Name of the served model, which claude-* mean too."
    )
    messages: Annotated[list[Turn], Field(min_length=1, fail_fast=True)] = Field(
        description="The conversation, in blocks or as texts; the last may be a begun answer."
    )
    system: TextBlocks | None = Field(None, description="Begin with this system message.")
    tools: Annotated[list[Tool], Field(fail_fast=True)] | None = None
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = Field(None, description="Whether the model reasons, and how much.")
    output_config: OutputConfig | None = Field(None, description="Effort, and a JSON schema.")

    def check(self, unknown: UnknownFields, where: str = "") -> None:
        """See `Body`. Tools that only Anthropic runs are as unknown fields."""
        super().check(unknown, where)
        unknown.check_tools(tool.type for tool in self.tools or () if tool.type != "custom")

    def read_prompts(self) -> tuple[Prompt, ...]:
        """The turns as messages."""
        read = [
            (f"messages[{index}]", message)
            for index, turn in enumerate(self.messages)
            for message in turn.for_template(f"messages[{index}]")
        ]
        told = [b.model_copy(update={"text": BILLING.sub("", b.text)}) for b in self.system or ()]
        if system := content_of([block for block in told if block.text]):
            read.insert(0, ("system", {"role": "system", "content": system}))
        paths, messages = zip(*read, strict=True)
        return (read_messages([*messages], paths),)

    def read_options(self) -> GenerationOptions:
        """See `GenerationBody`."""
        options = self.given_options
        functions = [
            each.model_dump(include={*Function.model_fields}, exclude_none=True)
            for each in self.tools or ()
            if each.type == "custom"
        ]
        options["tools"] = [{"type": "function", "function": own} for own in functions]
        options["continue_final_message"] = self.messages[-1].role == "assistant"
        if output := self.output_config:
            options["reasoning_effort"] = output.effort
            options["json_schema"] = output.format and output.format.content
        if self.thinking:
            options["thinking_token_budget"] = self.thinking.budget_tokens
            asked = options.get("reasoning_effort")
            efforts = {"disabled": "none", "enabled": asked or "auto"}
            options["reasoning_effort"] = efforts.get(self.thinking.type, asked)
        if choice := self.tool_choice:
            require(choice, ["name"] * (choice.type == "tool"), "tool_choice")
            named = {"type": "function", "function": {"name": choice.name}}
            meant = {"any": "required", "tool": named}
            options["tool_choice"] = meant.get(choice.type, choice.type)
            options["parallel_tool_calls"] = not choice.disable_parallel_tool_use
        return GenerationOptions(**options)


class MessagesBody(Conversation, GenerationBody):
    """A conversation to answer, in Anthropic's form."""

    max_tokens: Annotated[int, Field(ge=1)] = Field(description="Generate at most N tokens.")

    def read_options(self) -> GenerationOptions:
        """See `GenerationBody`."""
        return super().read_options().copy_with(max_new_tokens=self.max_tokens)


class CountBody(Conversation, Query):
    """A conversation whose tokens are counted."""

    def answer(self, served: Served) -> Json:
        """See `Query`."""
        [prompt] = self.read_prompts()
        return {"input_tokens": len(served.encode(prompt, self.read_options()))}
