"""Bodies of requests as JSON, of which those for generations are parsed to an `Ask`.

Fields beyond OpenAI's have their names from vLLM, transformers and llama.cpp.
"""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field

from ov_specdec.errors import OptionError
from ov_specdec.openai.answer import Ask
from ov_specdec.openai.body import Body, NeutralValues, Positive, Rules, read, said, with_options_of
from ov_specdec.openai.errors import OF_RESPONSES, from_exception, invalid
from ov_specdec.openai.messages import Content, Items, Messages, read_items, read_messages
from ov_specdec.openai.structured import (
    ResponseFormat,
    StructuredOutputs,
    TextFormat,
    TextOptions,
    read_structure,
)
from ov_specdec.openai.tools import ChatTool, ResponseTool, flat_name
from ov_specdec.options.generation import GenerationOptions
from ov_specdec.options.model import Endpoint
from ov_specdec.options.tools import definition_of

TopLogprobs = Annotated[int, Field(ge=0, le=20)]
"""As in OpenAI's reference."""

PromptIds = Annotated[list[int], Field(min_length=1, fail_fast=True)]

NEUTRAL: NeutralValues = {
    **dict.fromkeys(("allowed_token_ids", "grammar", "json_schema", "logits_processors"), ()),
    **dict.fromkeys(("guided_choice", "guided_grammar", "guided_json", "guided_regex"), ()),
    "bad_words": ([],),
    "length_penalty": (1.0, 1),
    "truncate_prompt_tokens": (),
    "use_beam_search": (False,),
}
"""Fields of OpenAI, vLLM and llama.cpp that would change the text, with their neutral values."""


class GenerationBody(Body):
    """Common fields of generating endpoints."""

    endpoint: ClassVar[Endpoint]
    neutral_values: ClassVar[NeutralValues] = NEUTRAL

    model: str | None = None
    stream: bool | None = None
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    structured_outputs: StructuredOutputs | None = None

    @property
    def names(self) -> dict[str, str]:
        """See `Ask`."""
        own = OF_RESPONSES if self.endpoint == "responses" else {}
        return own | (self.structured_outputs.names if self.structured_outputs else {})

    def read_structured(self, form: TextFormat | ResponseFormat | None) -> dict[str, Any]:
        """The options, with those of structured output. form: the format of the text."""
        return {**self.options, **read_structure(form, self.structured_outputs)}

    def ask(self, rules: Rules) -> Ask:
        """The parsed request."""
        raise NotImplementedError

    def make_ask(
        self, rules: Rules, options: dict[str, Any], max_tokens: int | None, **more: Any
    ) -> Ask:
        """The parsed request. options: by name. max_tokens: of the output. more: of its own."""
        max_tokens = rules.max_tokens if max_tokens is None else max_tokens
        return Ask(
            endpoint=self.endpoint,
            model=self.model,
            options=GenerationOptions(**options, max_new_tokens=max_tokens),
            stream=bool(self.stream),
            user=self.user or self.safety_identifier,
            cache_key=self.prompt_cache_key,
            names=self.names,
            **more,
        )


def read_ask(kind: type[GenerationBody], body: object, rules: Rules | None = None) -> Ask:
    """Parse a body of this kind; `ApiError` for invalid or unsupported fields."""
    rules = rules or Rules()
    asked = read(kind, body, rules)
    try:
        return asked.ask(rules)
    except OptionError as error:
        raise from_exception(error, "", asked.names) from error


class StreamOptions(Body):
    """Additions to a stream besides the text."""

    neutral_values: ClassVar[NeutralValues] = {"include_obfuscation": (False,)}

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class ChoicesBody(GenerationBody):
    """Common fields of chat completions and completions."""

    n: Annotated[int, Field(ge=1, le=128)] | None = None  # as in OpenAI's reference
    stream_options: StreamOptions | None = None
    return_origins: bool | None = None
    response_format: ResponseFormat | None = None

    @property
    def choices(self) -> dict[str, Any]:
        """Fields of `Ask` about them."""
        for name in ("stream_options", "return_origins"):
            if getattr(self, name) and not self.stream:
                raise invalid(name, f"{name} has no effect without stream=true")
        streaming = self.stream_options or StreamOptions()
        return {
            "n": self.n or 1,
            "include_usage": bool(streaming.include_usage),
            "usage_in_events": bool(streaming.include_usage and streaming.continuous_usage_stats),
            "origins": bool(self.return_origins),
        }


class Prediction(Body):
    """A text that the answer is expected to repeat."""

    type: Literal["content"]
    content: Content


@with_options_of("chat")
class ChatBody(ChoicesBody):
    """A conversation to answer, in the model's chat template."""

    endpoint = "chat"
    neutral_values: ClassVar[NeutralValues] = {
        **NEUTRAL,
        **dict.fromkeys(("audio", "chat_template", "documents", "web_search_options"), ()),
        "functions": ([],),
        "function_call": ("none", "auto"),
        **dict.fromkeys(("echo", "store"), (False,)),
        "metadata": ({},),
        "modalities": (["text"],),
        "service_tier": ("auto", "default"),
        "verbosity": ("medium",),
    }

    messages: Messages
    tools: Annotated[list[ChatTool], Field(fail_fast=True)] | None = None
    max_tokens: Positive | None = None
    max_completion_tokens: Positive | None = None
    logprobs: bool | None = None
    top_logprobs: TopLogprobs | None = None
    prediction: Prediction | None = None

    def ask(self, rules: Rules) -> Ask:
        """The parsed request."""
        length, newer = self.max_tokens, self.max_completion_tokens
        options = self.read_structured(self.response_format)
        if None not in (length, newer) and length != newer:
            raise invalid(
                "max_tokens",
                f"max_tokens={length} contradicts max_completion_tokens={newer}: leave out one",
            )
        if self.top_logprobs and not self.logprobs:
            raise invalid("top_logprobs", f"top_logprobs={self.top_logprobs} needs logprobs=true")
        if self.logprobs:
            options["logprobs"] = self.top_logprobs or 0
        content = self.prediction.content if self.prediction else ""
        text = content if isinstance(content, str) else "\n".join(part.text for part in content)
        if text:
            options["reference_texts"] = (text,)
        options["tools"] = [tool.model_dump(exclude_none=True) for tool in self.tools or ()]
        return self.make_ask(
            rules,
            options,
            newer if length is None else length,
            prompts=(read_messages(message.given() for message in self.messages),),
            has_prediction=self.prediction is not None,
            **self.choices,
        )


@with_options_of("completions")
class CompletionBody(ChoicesBody):
    """Prompts to continue, texts or token ids, without a chat template."""

    endpoint = "completions"
    neutral_values: ClassVar[NeutralValues] = {**NEUTRAL, "prompt_embeds": (), "suffix": ("",)}

    prompt: Annotated[
        str | PromptIds | Annotated[list[str | PromptIds], Field(min_length=1, fail_fast=True)],
        said("a text or token ids, or a list of such"),
    ]
    max_tokens: Annotated[int, Field(ge=0)] | None = None
    logprobs: TopLogprobs | None = None
    echo: bool | None = None
    best_of: Positive | None = None

    def ask(self, rules: Rules) -> Ask:
        """The parsed request."""
        if self.best_of not in (None, self.n or 1):
            raise invalid("best_of", "best_of is only supported if it equals n: leave it out")
        options = {**self.read_structured(self.response_format), "apply_chat_template": False}
        if self.logprobs is not None:
            options["logprobs"] = self.logprobs
        if self.echo and (self.logprobs is not None or self.max_tokens == 0):
            options["prompt_logprobs"] = self.logprobs or 0
        is_one = isinstance(self.prompt, str) or isinstance(self.prompt[0], int)
        prompts = (self.prompt,) if is_one else tuple(self.prompt)
        more = {"prompts": prompts, "echo": bool(self.echo), **self.choices}
        return self.make_ask(rules, options, self.max_tokens, **more)


class ReasoningOptions(Body):
    """How a response reasons. summary: taken, and none is made."""

    effort: str | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None


def _as_messages(given: object) -> object:
    """A text as a message of the user."""
    return [{"role": "user", "content": given}] if isinstance(given, str) else given


@with_options_of("responses")
class ResponsesBody(GenerationBody):
    """A text or a conversation to answer; nothing is stored."""

    endpoint = "responses"
    neutral_values: ClassVar[NeutralValues] = {
        **NEUTRAL,
        **dict.fromkeys(("conversation", "max_tokens", "max_tool_calls", "prompt"), ()),
        **dict.fromkeys(("background", "store"), (False,)),
        "previous_response_id": (),
        "response_format": ({"type": "text"},),
        "service_tier": ("auto", "default"),
        "stream_options": ({}, {"include_obfuscation": False}),
        "top_logprobs": (0,),
        "truncation": ("disabled",),
    }

    input: Annotated[Items, BeforeValidator(_as_messages, json_schema_input_type=str | Items)]
    instructions: str | None = None
    text: TextOptions | None = None
    max_output_tokens: Positive | None = None
    metadata: Annotated[dict[str, str], Field(fail_fast=True)] | None = None
    tools: Annotated[list[ResponseTool], Field(fail_fast=True)] | None = None
    reasoning: ReasoningOptions | None = None
    include: list[Literal["reasoning.encrypted_content"]] | None = None

    def check_others(self, rules: Rules, where: str = "") -> None:
        """See `Body`. Tools that only OpenAI runs are as unknown fields."""
        super().check_others(rules, where)
        for tool in self.tools or ():
            if tool.is_hosted:
                rules.check_unknown(f"tools.{tool.type}", tool.type, ())

    def ask(self, rules: Rules) -> Ask:
        """The parsed request."""
        options = self.read_structured(self.text.format if self.text else None)
        reasoning = self.reasoning or ReasoningOptions()
        if reasoning.effort is not None:
            options["reasoning_effort"] = reasoning.effort
        flat = [found for tool in self.tools or () for found in tool.flatten()]
        options["tools"] = [tool for _, tool in flat]
        choice = options.get("tool_choice", "auto")
        if isinstance(choice, dict) and choice.get("namespace") is not None:
            options["tool_choice"] = flat_name(str(choice.get("name")), str(choice["namespace"]))
        messages = read_items(self.input)
        if self.instructions is not None:
            messages = [{"role": "system", "content": self.instructions}, *messages]
        own = [tool for tool in self.tools or () if not tool.is_hosted]
        settings = {
            "instructions": self.instructions,
            "max_output_tokens": self.max_output_tokens,
            "metadata": self.metadata or {},
            "reasoning": {"effort": reasoning.effort, "summary": reasoning.summary},
            "text": self.text.settings if self.text else {"format": {"type": "text"}},
            "tool_choice": choice,
            "tools": [tool.model_dump(exclude_unset=True) for tool in own],
            "user": self.user or self.safety_identifier,
        }
        return self.make_ask(
            rules,
            options,
            self.max_output_tokens,
            prompts=(messages,),
            settings=settings,
            tools={definition_of(tool)["name"]: fields for fields, tool in flat},
        )
