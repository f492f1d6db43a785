"""Requests for texts: their fields, and the prompts and options that are read from them.

Fields beyond OpenAI's have their names from vLLM, transformers and llama.cpp.
"""

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import BeforeValidator, Field

from ov_specdec.api.body import (
    Body,
    GenerationBody,
    NeutralValues,
    Refused,
    UnknownFields,
    with_options,
)
from ov_specdec.api.errors import invalid, said
from ov_specdec.api.messages import ChatTool, Content, Messages, read_messages
from ov_specdec.openai.items import Items, read_items
from ov_specdec.openai.structured import (
    ResponseFormat,
    ResponseTool,
    StructuredOutputs,
    TextFormat,
    TextOptions,
    Verbosity,
    flat_name,
    read_structure,
)
from ov_specdec.options.generation import GenerationOptions
from ov_specdec.options.model import request_fields
from ov_specdec.options.structured import definition_of
from ov_specdec.text.prompt import Prompt

B = TypeVar("B", bound=Body)

Positive = Annotated[int, Field(ge=1)]

TopLogprobs = Annotated[int, Field(ge=0, le=20)]
"""As in OpenAI's reference."""

PromptIds = Annotated[list[int], Field(min_length=1, fail_fast=True)]

NEUTRAL: NeutralValues = {
    **dict.fromkeys(("allowed_token_ids", "logits_processors", "truncate_prompt_tokens"), ()),
    **{f"guided_{k}": Refused(f"give structured_outputs.{k}") for k in ("choice", "json", "regex")},
    **dict.fromkeys(
        ("grammar", "guided_grammar"), Refused("give structured_outputs.grammar, in Lark")
    ),
    "bad_words": ([],),
    "json_schema": Refused("give response_format, or structured_outputs.json"),
    "length_penalty": (1.0, 1),
    "use_beam_search": (False,),
}
"""Fields of OpenAI, vLLM and llama.cpp that would change the text, with their neutral values."""

OF_TRANSLATIONS = ("forced_bos_token_id", "tgt_lang", "src_lang")
OF_CHATS = (
    *("chat_template_kwargs", "add_generation_prompt", "continue_final_message"),
    *("tool_choice", "parallel_tool_calls", "reasoning_effort", "thinking_token_budget"),
)
"""Options that only completions take, and that they do not."""


def with_options_but(*others: str) -> Callable[[type[B]], type[B]]:
    """Adds all options of a generation but these, of which only neutral values are taken."""
    known, fields = GenerationOptions.model_fields, request_fields(GenerationOptions)
    defaults = {fields[name]: known[name].default for name in others}
    neutral = {k: () if value is None else (value,) for k, value in defaults.items()}
    return with_options(GenerationOptions, [n for n in fields if n not in others], neutral)


class OpenAIBody(GenerationBody):
    """Common fields of generating endpoints."""

    neutral_values: ClassVar[NeutralValues] = NEUTRAL

    user: str | None = Field(None, description="Name of the user in the log, up to 128 characters.")
    safety_identifier: str | None = Field(None, description="As user.")
    prompt_cache_key: str | None = Field(None, description="Choose the replica by this.")
    structured_outputs: StructuredOutputs | None = Field(None, description="Constrain the output.")
    metadata: Annotated[dict[str, str], Field(fail_fast=True)] | None = Field(
        None, description="Changes nothing; a response repeats it."
    )

    def common_options(self, form: TextFormat | ResponseFormat | None) -> dict[str, Any]:
        """The options of all endpoints, by name. form: the format of the text."""
        return {**self.given_options, **read_structure(form, self.structured_outputs)}

    @property
    def names(self) -> Mapping[str, str]:
        """See `Body`."""
        outputs = self.structured_outputs
        return self.fields if outputs is None else {**self.fields, **outputs.names}

    @property
    def user_name(self) -> str | None:
        """See `Body`."""
        return self.user or self.safety_identifier

    @property
    def session(self) -> str | None:
        """See `GenerationBody`."""
        return self.prompt_cache_key


class StreamOptions(Body):
    """Additions to a stream besides the text."""

    neutral_values: ClassVar[NeutralValues] = {"include_obfuscation": (False,)}

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class ChoicesBody(OpenAIBody):
    """Common fields of chat completions and completions."""

    fields: ClassVar[Mapping[str, str]] = {
        **GenerationBody.fields,
        **dict.fromkeys(("json_object", "json_schema"), "response_format"),
        "max_new_tokens": "max_tokens",
        "prompt_logprobs": "echo",
        "reference_texts": "prediction",
    }

    n: Annotated[int, Field(ge=1, le=128)] | None = Field(  # as in OpenAI's reference
        None, description="Number of choices; with a seed, each draws a text of its own."
    )
    stream_options: StreamOptions | None = Field(
        None, description="Add to a stream: see `include_usage` and `continuous_usage_stats`."
    )
    return_origins: bool | None = Field(None, description="Add origins to pieces of a stream.")
    response_format: ResponseFormat | None = Field(None, description="Constrain the output.")

    @property
    def choices_per_prompt(self) -> int:
        """Number of choices for each prompt."""
        return self.n or 1

    def check(self, unknown: UnknownFields, where: str = "") -> None:
        """See `Body`."""
        super().check(unknown, where)
        for name in ("stream_options", "return_origins"):
            if getattr(self, name) and not self.stream:
                raise invalid(name, f"{name} has no effect without stream=true")


class Prediction(Body):
    """A text that the answer is expected to repeat."""

    type: Literal["content"]
    content: Content


@with_options_but(*OF_TRANSLATIONS)
class ChatBody(ChoicesBody):
    """A conversation to answer, in the model's chat template."""

    neutral_values: ClassVar[NeutralValues] = {
        **NEUTRAL,
        **dict.fromkeys(("audio", "chat_template", "documents", "web_search_options"), ()),
        "functions": Refused("give tools", ([],)),
        "function_call": Refused("give tool_choice", ("none", "auto")),
        **dict.fromkeys(("echo", "store"), (False,)),
        "modalities": (["text"],),
        "service_tier": ("auto", "default"),
    }

    messages: Messages = Field(description="The conversation; the role developer counts as system.")
    tools: Annotated[list[ChatTool], Field(fail_fast=True)] | None = None
    max_tokens: Positive | None = None
    max_completion_tokens: Positive | None = Field(None, description="As max_tokens.")
    logprobs: bool | None = None
    top_logprobs: TopLogprobs | None = Field(None, description="Also of the N most likely tokens.")
    prediction: Prediction | None = Field(
        None, description="Draft from matches in this text, which the answer may repeat."
    )
    verbosity: Verbosity | None = Field(None, description="Changes nothing.")

    def read_prompts(self) -> tuple[Prompt, ...]:
        """The messages."""
        return (read_messages([message.for_template() for message in self.messages]),)

    def read_options(self) -> GenerationOptions:
        """See `GenerationBody`."""
        length, newer = self.max_tokens, self.max_completion_tokens
        if None not in (length, newer) and length != newer:
            raise invalid(
                "max_tokens",
                f"max_tokens={length} contradicts max_completion_tokens={newer}: leave out one",
            )
        if self.top_logprobs and not self.logprobs:
            raise invalid("top_logprobs", f"top_logprobs={self.top_logprobs} needs logprobs=true")
        options = self.common_options(self.response_format)
        options["max_new_tokens"] = newer if length is None else length
        if self.logprobs:
            options["logprobs"] = self.top_logprobs or 0
        content = self.prediction.content if self.prediction else ""
        text = content if isinstance(content, str) else "\n".join(part.text for part in content)
        if text:
            options["reference_texts"] = (text,)
        options["tools"] = [tool.model_dump(exclude_none=True) for tool in self.tools or ()]
        return GenerationOptions(**options)


@with_options_but(*OF_CHATS)
class CompletionBody(ChoicesBody):
    """Prompts to continue, texts or token ids, without a chat template."""

    conversation_field: ClassVar[str] = ""
    neutral_values: ClassVar[NeutralValues] = {**NEUTRAL, "prompt_embeds": (), "suffix": ("",)}

    prompt: Annotated[
        str | PromptIds | Annotated[list[str | PromptIds], Field(min_length=1, fail_fast=True)],
        said("a text or token ids, or a list of such"),
    ] = Field(description="One or several prompts, texts or token ids.")
    max_tokens: Annotated[int, Field(ge=0)] | None = Field(
        None, description="Generate at most N tokens; 0 with echo scores a prompt."
    )
    logprobs: TopLogprobs | None = Field(
        None, description="Return log-probabilities of the main model, before processors."
    )
    echo: bool | None = Field(
        None, description="Return the prompt before the output; with logprobs, scored too."
    )
    best_of: Positive | None = Field(None, description="As many as n only.")

    def read_prompts(self) -> tuple[Prompt, ...]:
        """One prompt or several."""
        prompt: Any = self.prompt
        is_one = isinstance(prompt, str) or isinstance(prompt[0], int)
        return (prompt,) if is_one else tuple(prompt)

    def read_options(self) -> GenerationOptions:
        """See `GenerationBody`."""
        if self.best_of not in (None, self.choices_per_prompt):
            raise invalid("best_of", "best_of is only supported if it equals n: leave it out")
        options = self.common_options(self.response_format)
        options |= {"apply_chat_template": False, "max_new_tokens": self.max_tokens}
        if self.logprobs is not None:
            options["logprobs"] = self.logprobs
        if self.echo and (self.logprobs is not None or self.max_tokens == 0):
            options["prompt_logprobs"] = self.logprobs or 0
        return GenerationOptions(**options)


class ReasoningOptions(Body):
    """How a response reasons. summary: taken, and none is made."""

    effort: str | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None


def _as_messages(given: object) -> object:
    """A text as a message of the user."""
    return [{"role": "user", "content": given}] if isinstance(given, str) else given


@with_options_but(*OF_TRANSLATIONS, "reasoning_effort")
class ResponsesBody(OpenAIBody):
    """A text or a conversation to answer; nothing is stored."""

    conversation_field: ClassVar[str] = "input"
    fields: ClassVar[Mapping[str, str]] = {
        **GenerationBody.fields,
        **dict.fromkeys(("json_object", "json_schema"), "text.format"),
        "max_new_tokens": "max_output_tokens",
        "reasoning_effort": "reasoning.effort",
    }
    neutral_values: ClassVar[NeutralValues] = {
        **NEUTRAL,
        **dict.fromkeys(("conversation", "max_tokens", "max_tool_calls", "prompt"), ()),
        **dict.fromkeys(("background", "store"), (False,)),
        "previous_response_id": (),
        "response_format": Refused("give text.format", ({"type": "text"},)),
        "service_tier": ("auto", "default"),
        "stream_options": ({}, {"include_obfuscation": False}),
        "top_logprobs": (0,),
        "truncation": ("disabled",),
    }

    input: Annotated[Items, BeforeValidator(_as_messages, json_schema_input_type=str | Items)] = (
        Field(description="A text, or messages, reasoning, calls of tools and what they gave.")
    )
    instructions: str | None = Field(None, description="Begin with this system message.")
    text: TextOptions | None = Field(None, description="Constrain the output.")
    max_output_tokens: Positive | None = Field(None, description="As max_tokens.")
    tools: Annotated[list[ResponseTool], Field(fail_fast=True)] | None = Field(
        None,
        description="Tools that the model may call; in responses also custom ones, namespaces.",
    )
    reasoning: ReasoningOptions | None = Field(None, description="Effort; no summary is made.")
    include: list[Literal["reasoning.encrypted_content"]] | None = Field(
        None, description="Changes nothing: reasoning is always there, and not encrypted."
    )

    def check(self, unknown: UnknownFields, where: str = "") -> None:
        """See `Body`. Tools that only OpenAI runs are as unknown fields."""
        super().check(unknown, where)
        unknown.check_tools(tool.type for tool in self.tools or () if tool.is_hosted)

    def read_prompts(self) -> tuple[Prompt, ...]:
        """The items as messages."""
        messages = read_items(self.input)
        if self.instructions is not None:
            messages = [{"role": "system", "content": self.instructions}, *messages]
        return (messages,)

    def read_options(self) -> GenerationOptions:
        """See `GenerationBody`."""
        options = self.common_options(self.text.format if self.text else None)
        options["max_new_tokens"] = self.max_output_tokens
        if self.reasoning and self.reasoning.effort is not None:
            options["reasoning_effort"] = self.reasoning.effort
        options["tools"] = [tool for _, tool in self._flat_tools]
        choice = options.get("tool_choice")
        if isinstance(choice, dict) and choice.get("namespace") is not None:
            options["tool_choice"] = flat_name(str(choice.get("name")), str(choice["namespace"]))
        return GenerationOptions(**options)

    @property
    def _flat_tools(self) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        return [found for tool in self.tools or () for found in tool.flatten()]

    @cached_property
    def items_of_tools(self) -> dict[str, dict[str, Any]]:
        """The fields of items that call a tool, by the name that the model knows."""
        return {definition_of(tool)["name"]: fields for fields, tool in self._flat_tools}

    @property
    def settings(self) -> dict[str, Any]:
        """What the response repeats."""
        reasoning, text = self.reasoning or ReasoningOptions(), self.text or TextOptions()
        known: Any = {"verbosity": True, "format": {*TextFormat.model_fields}}
        given = text.model_dump(by_alias=True, exclude_none=True, include=known)
        own = [tool for tool in self.tools or () if not tool.is_hosted]
        return {
            "instructions": self.instructions,
            "max_output_tokens": self.max_output_tokens,
            "metadata": self.metadata or {},
            "reasoning": {"effort": reasoning.effort, "summary": reasoning.summary},
            "text": {"format": {"type": "text"}, **given},
            "tool_choice": self.given_options.get("tool_choice", "auto"),
            "tools": [tool.model_dump(exclude_unset=True) for tool in own],
            "user": self.user_name,
        }
