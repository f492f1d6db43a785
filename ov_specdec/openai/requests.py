"""Bodies of /v1/chat/completions, /v1/completions and /v1/responses, parsed to an `Ask`.

Fields beyond OpenAI's have their names from vLLM, transformers and llama.cpp.
"""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from ov_specdec.errors import OptionError
from ov_specdec.openai.ask import Ask
from ov_specdec.openai.body import Body, Rules, read
from ov_specdec.openai.errors import in_field_names, invalid
from ov_specdec.openai.fields import (
    Object,
    Only,
    Positive,
    options_of,
    others_of,
    said,
    values,
    with_options,
)
from ov_specdec.openai.messages import Content, InputMessage, Messages, join, read_messages
from ov_specdec.options import GenerationOptions
from ov_specdec.text.prompt import Prompt

MAX_CHOICES = 128
TopLogprobs = Annotated[int, Field(ge=0, le=20)]
"""Both as in OpenAI's reference."""

COMPLETION_TOKENS = 16
"""Default max_tokens of /v1/completions, as in OpenAI's reference."""

Ids = Annotated[list[int], Field(min_length=1, fail_fast=True)]


class GenerationBody(Body):
    """Common fields of generating endpoints."""

    model: str | None = None
    stream: bool | None = None
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    # vLLM's and llama.cpp's, which would change the text, and are not supported here.
    allowed_token_ids: Annotated[Any, Only()] = None
    bad_words: Annotated[Any, Only([])] = None
    grammar: Annotated[Any, Only()] = None
    guided_choice: Annotated[Any, Only()] = None
    guided_grammar: Annotated[Any, Only()] = None
    guided_json: Annotated[Any, Only()] = None
    guided_regex: Annotated[Any, Only()] = None
    json_schema: Annotated[Any, Only()] = None
    length_penalty: Annotated[Any, Only(1.0, 1)] = None
    logits_processors: Annotated[Any, Only()] = None
    response_format: Annotated[Any, Only({"type": "text"})] = None
    structured_outputs: Annotated[Any, Only()] = None
    thinking_token_budget: Annotated[Any, Only()] = None
    truncate_prompt_tokens: Annotated[Any, Only()] = None
    use_beam_search: Annotated[Any, Only(False)] = None

    def ask(self, options: Object) -> Ask:
        """The parsed request. options: generation options of all endpoints."""
        raise NotImplementedError


def read_ask(kind: type[GenerationBody], body: object, rules: Rules | None = None) -> Ask:
    """Parse a body of this kind; `ApiError` for invalid or unsupported fields."""
    rules = rules or Rules()
    asked = read(kind, body, rules.unknown)
    options = asked.options
    if rules.temperature is not None:
        options.setdefault("temperature", rules.temperature)
    ask = asked.ask(options)
    try:
        GenerationOptions.from_kwargs(ask.options)
    except OptionError as error:
        raise in_field_names(error, ask.endpoint) from error
    return ask


class StreamOptions(Body):
    """Additions to a stream besides the text."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None
    include_obfuscation: Annotated[Any, Only(False)] = None


class ChoicesBody(GenerationBody):
    """Common fields of chat completions and completions."""

    n: Annotated[int, Field(ge=1, le=MAX_CHOICES)] | None = None
    stream_options: StreamOptions | None = None
    return_origins: bool | None = None

    def asked(self, endpoint: Literal["chat", "completions"], prompts: Any, **more: Any) -> Ask:
        """Parse the common fields of both endpoints."""
        for name in ("stream_options", "return_origins"):
            if getattr(self, name) and not self.stream:
                raise invalid(name, f"{name} has no effect without stream=true")
        streaming = self.stream_options or StreamOptions()
        if more["logprobs"] is not None:
            more["options"]["logprobs"] = more["logprobs"]
        return Ask(
            endpoint=endpoint,
            model=self.model,
            prompts=prompts,
            n=self.n or 1,
            stream=bool(self.stream),
            include_usage=bool(streaming.include_usage),
            usage_in_events=bool(streaming.include_usage and streaming.continuous_usage_stats),
            origins=bool(self.return_origins),
            user=self.user or self.safety_identifier,
            cache_key=self.prompt_cache_key,
            **more,
        )


class Prediction(Body):
    """A text that the answer is expected to repeat."""

    type: Literal["content"]
    content: Content


@with_options(options_of("chat"), others_of("chat"))
class ChatBody(ChoicesBody):
    """Body of /v1/chat/completions."""

    messages: Messages
    max_tokens: Positive | None = None
    max_completion_tokens: Positive | None = None
    logprobs: bool | None = None
    top_logprobs: TopLogprobs | None = None
    prediction: Prediction | None = None
    # Not supported here.
    add_special_tokens: Annotated[Any, Only(False)] = None
    audio: Annotated[Any, Only()] = None
    functions: Annotated[Any, Only([])] = None
    function_call: Annotated[Any, Only("none", "auto")] = None
    metadata: Annotated[Any, Only({})] = None
    chat_template: Annotated[Any, Only()] = None
    documents: Annotated[Any, Only()] = None
    echo: Annotated[Any, Only(False)] = None
    modalities: Annotated[Any, Only(["text"])] = None
    parallel_tool_calls: Annotated[Any, Only(True, False)] = None
    reasoning_effort: Annotated[Any, Only("none")] = None
    service_tier: Annotated[Any, Only("auto", "default")] = None
    store: Annotated[Any, Only(False)] = None
    tool_choice: Annotated[Any, Only("none", "auto")] = None
    tools: Annotated[Any, Only([])] = None
    verbosity: Annotated[Any, Only("medium")] = None
    web_search_options: Annotated[Any, Only()] = None

    def ask(self, options: Object) -> Ask:
        """The parsed request."""
        length, newer = self.max_tokens, self.max_completion_tokens
        if None not in (length, newer) and length != newer:
            raise invalid(
                "max_tokens",
                f"max_tokens={length} contradicts max_completion_tokens={newer}: leave out one",
            )
        options["max_new_tokens"] = newer if length is None else length
        if self.top_logprobs and not self.logprobs:
            raise invalid("top_logprobs", f"top_logprobs={self.top_logprobs} needs logprobs=true")
        logprobs = self.top_logprobs or 0 if self.logprobs else None
        prediction = None if self.prediction is None else join(self.prediction.content)
        if prediction:
            options["reference_texts"] = (prediction,)
        messages = read_messages(self.messages)
        more = {"logprobs": logprobs, "prediction": prediction}
        return self.asked("chat", (messages,), options=options, **more)


@with_options(options_of("completions"), others_of("completions"))
class CompletionBody(ChoicesBody):
    """Body of /v1/completions."""

    prompt: Annotated[
        str | Ids | Annotated[list[str | Ids], Field(min_length=1, fail_fast=True)],
        said("a text or token ids, or a list of such"),
    ]
    max_tokens: Positive | None = None
    logprobs: TopLogprobs | None = None
    echo: bool | None = None
    best_of: Positive | None = None
    # Not supported here.
    add_special_tokens: Annotated[Any, Only(True)] = None
    prompt_embeds: Annotated[Any, Only()] = None
    suffix: Annotated[Any, Only("")] = None

    def ask(self, options: Object) -> Ask:
        """The parsed request."""
        options["apply_chat_template"] = False
        options["max_new_tokens"] = self.max_tokens or COMPLETION_TOKENS
        if self.echo and self.logprobs is not None:
            options["prompt_logprobs"] = self.logprobs
        if self.best_of not in (None, self.n or 1):
            raise invalid("best_of", "best_of is only supported if it equals n: leave it out")
        more = {"logprobs": self.logprobs, "echo": bool(self.echo)}
        return self.asked("completions", self._prompts(), options=options, **more)

    def _prompts(self) -> tuple[Prompt, ...]:
        """One or several prompts."""
        if isinstance(self.prompt, str) or isinstance(self.prompt[0], int):
            return (self.prompt,)
        return tuple(self.prompt)


def _as_messages(given: object) -> object:
    """A text as a message of the user."""
    return [{"role": "user", "content": given}] if isinstance(given, str) else given


Input = Annotated[
    list[InputMessage],
    Field(min_length=1, fail_fast=True),
    BeforeValidator(_as_messages, json_schema_input_type=str | list[InputMessage]),
]


Metadata = Annotated[dict[str, str], values(lambda text: isinstance(text, str), "a text")]


@with_options(options_of("responses"), others_of("responses"))
class ResponsesBody(GenerationBody):
    """Body of /v1/responses."""

    input: Input
    instructions: str | None = None
    max_output_tokens: Positive | None = None
    metadata: Metadata | None = None
    parallel_tool_calls: bool | None = None
    tool_choice: Literal["none", "auto"] | None = None
    # Not supported here.
    background: Annotated[Any, Only(False)] = None
    conversation: Annotated[Any, Only()] = None
    include: Annotated[Any, Only([])] = None
    max_tokens: Annotated[Any, Only()] = None
    max_tool_calls: Annotated[Any, Only()] = None
    previous_response_id: Annotated[Any, Only()] = None
    prompt: Annotated[Any, Only()] = None
    reasoning: Annotated[Any, Only({}, {"effort": "none"})] = None
    service_tier: Annotated[Any, Only("auto", "default")] = None
    store: Annotated[Any, Only(False)] = None
    stream_options: Annotated[Any, Only({}, {"include_obfuscation": False})] = None
    text: Annotated[Any, Only({}, {"format": {"type": "text"}})] = None
    tools: Annotated[Any, Only([])] = None
    top_logprobs: Annotated[Any, Only(0)] = None
    truncation: Annotated[Any, Only("disabled")] = None

    def ask(self, options: Object) -> Ask:
        """The parsed request."""
        options["max_new_tokens"] = self.max_output_tokens
        user = self.user or self.safety_identifier
        settings = {
            "instructions": self.instructions,
            "max_output_tokens": self.max_output_tokens,
            "metadata": self.metadata or {},
            "parallel_tool_calls": self.parallel_tool_calls is not False,
            "temperature": options.get("temperature"),
            "tool_choice": self.tool_choice or "auto",
            "top_p": options.get("top_p", 1.0),
            "user": user,
        }
        return Ask(
            endpoint="responses",
            model=self.model,
            prompts=(self._messages(),),
            options=options,
            stream=bool(self.stream),
            user=user,
            cache_key=self.prompt_cache_key,
            settings=settings,
        )

    def _messages(self) -> list[dict[str, Any]]:
        messages = read_messages(self.input, "input")
        if self.instructions is None:
            return messages
        return [{"role": "system", "content": self.instructions}, *messages]
