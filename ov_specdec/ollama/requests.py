"""Requests of Ollama's interface, and how their answers hold text."""

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field

from ov_specdec.api.body import MAX_SEED, Body, GenerationBody, NeutralValues, Refused, with_options
from ov_specdec.api.errors import Json, invalid, said
from ov_specdec.api.messages import ChatTool, Message, read_messages
from ov_specdec.options.generation import GenerationOptions
from ov_specdec.text.prompt import Prompt

Length = Annotated[int, Field(ge=-2), AfterValidator(lambda length: length if length > 0 else None)]
Seed = Annotated[int, Field(ge=-1, lt=MAX_SEED), AfterValidator(lambda n: n if n >= 0 else None)]
Format = Annotated[Literal["", "json"] | dict[str, Any], said("json or a JSON schema")]
Images = Annotated[list[Any], Field(max_length=0), said("left out: the model reads text only")]

NAMES = (
    *("temperature", "top_k", "top_p", "min_p", "typical_p", "stop_strings"),
    *("repetition_penalty", "presence_penalty", "frequency_penalty"),
)


@with_options(GenerationOptions, NAMES, repetition_penalty="repeat_penalty")
class RunOptions(Body):
    """The field `options`. There lengths that are not positive are none, and -1 is no seed."""

    option_names: ClassVar[tuple[str, ...]] = ("max_new_tokens", "seed")
    ignored = (  # how models are loaded there, and settings of what is off
        *("num_ctx", "num_keep", "num_batch", "num_gpu", "main_gpu", "num_thread", "numa"),
        *("low_vram", "f16_kv", "use_mmap", "use_mlock", "logits_all", "vocab_only"),
        *("embedding_only", "mirostat_eta", "mirostat_tau"),
    )
    neutral_values: ClassVar[NeutralValues] = {
        "mirostat": (0,),
        "penalize_newline": (True,),
        "repeat_last_n": Refused("penalties count all tokens, give -1", (-1,)),
        "tfs_z": (1.0, 1),
    }

    max_new_tokens: Length | None = Field(None, alias="num_predict")
    seed: Seed | None = None


class OllamaRequest(GenerationBody):
    """What both kinds of requests share; without a prompt, nothing is generated."""

    fields: ClassVar[Mapping[str, str]] = {
        **GenerationBody.fields,
        **{name: f"options.{RunOptions.fields[name]}" for name in NAMES},
        **{"max_new_tokens": "options.num_predict", "seed": "options.seed"},
        **{"json_object": "format", "json_schema": "format"},
        **{"reasoning_effort": "think", "chat_template_kwargs": "suffix"},
    }
    neutral_values: ClassVar[NeutralValues] = {
        **dict.fromkeys(("logprobs", "truncate", "shift"), (False,)),
        **dict.fromkeys(("width", "height", "steps"), ()),
        "context": Refused("send messages to /api/chat", ([],)),
        "template": Refused("start the server with --chat-template FILE", ("",)),
        "top_logprobs": (0,),
    }

    given: RunOptions | None = Field(None, alias="options")
    format: Format | None = None
    think: Literal[True, False, "low", "medium", "high", "max"] | None = None
    keep_alive: Any = None

    def common_options(self) -> dict[str, Any]:
        """The options of both, by name."""
        options = self.given.given_options if self.given else {}
        think: Any = self.think
        if think is not None:
            options["reasoning_effort"] = {True: "auto", False: "none"}.get(think, think)
        if isinstance(self.format, dict):
            return {**options, "json_schema": self.format}
        return {**options, "json_object": True} if self.format else options

    def piece(self, text: str, thinking: str, calls: Sequence[Json]) -> Json:
        """How an answer holds its text, or a piece of it."""
        raise NotImplementedError


class ChatMessage(Message):
    """A message; one with a result may have the `tool_name`."""

    reasoning: str | None = Field(None, alias="thinking")
    images: Images | None = None


class ChatRequest(OllamaRequest):
    """A conversation to answer."""

    messages: Annotated[list[ChatMessage], Field(fail_fast=True)] | None = None
    tools: Annotated[list[ChatTool], Field(fail_fast=True)] | None = None

    def read_prompts(self) -> tuple[Prompt, ...]:
        """The messages, with ids of calls and of their results, by name, else in order."""
        messages = [message.for_template() for message in self.messages or ()]
        numbers, waiting = count(), list[tuple[str, str]]()
        for message in messages:
            if calls := message.get("tool_calls"):
                ids = [call.setdefault("id", f"call{next(numbers):05}") for call in calls]
                waiting = [*zip((call["function"]["name"] for call in calls), ids, strict=True)]
            name = message.get("tool_name")
            if message["role"] == "tool" and waiting:
                own = next((each for each in waiting if each[0] == name), waiting[0])
                waiting.remove(own)
                message.setdefault("tool_call_id", own[1])
            if name:
                message["name"] = name
        return (read_messages(messages),) if messages else ()

    def read_options(self) -> GenerationOptions:
        """See `GenerationBody`."""
        tools = [tool.model_dump(exclude_none=True) for tool in self.tools or ()]
        return GenerationOptions(**self.common_options(), tools=tools)

    def piece(self, text: str, thinking: str, calls: Sequence[Json]) -> Json:
        """See `OllamaRequest`."""
        more = {"thinking": thinking, "tool_calls": calls}
        message = {"role": "assistant", "content": text}
        return {"message": {**message, **{k: v for k, v in more.items() if v}}}


class GenerateRequest(OllamaRequest):
    """A text to answer, or with `raw` to continue. suffix: for chat templates that have such."""

    conversation_field: ClassVar[str] = ""

    prompt: str | None = None
    system: str | None = None
    suffix: str | None = None
    raw: bool | None = None
    images: Images | None = None

    def read_prompts(self) -> tuple[Prompt, ...]:
        """The prompt, if there is one."""
        if not self.prompt or not self.system:
            return (self.prompt,) if self.prompt else ()
        roles = {"system": self.system, "user": self.prompt}
        return (read_messages([{"role": k, "content": text} for k, text in roles.items()]),)

    def read_options(self) -> GenerationOptions:
        """See `GenerationBody`."""
        for name in ("system", "suffix", "think") if self.raw else ():
            if getattr(self, name):
                raise invalid(name, f"{name} has no effect with raw=true: leave out one of the two")
        options = {**self.common_options(), "apply_chat_template": not self.raw}
        if self.suffix:
            options["chat_template_kwargs"] = {"suffix": self.suffix}
        return GenerationOptions(**options)

    def piece(self, text: str, thinking: str, calls: Sequence[Json]) -> Json:  # noqa: ARG002
        """See `OllamaRequest`."""
        return {"response": text, **({"thinking": thinking} if thinking else {})}
