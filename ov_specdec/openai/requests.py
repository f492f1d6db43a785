"""Bodies of /v1/chat/completions and /v1/completions: from OpenAI's fields to ours.

The fields beyond OpenAI's have the names that vLLM and llama.cpp give them.
"""

from collections.abc import Mapping
from typing import Any

from ov_specdec.checks import shorten
from ov_specdec.errors import OptionError
from ov_specdec.openai.ask import Ask
from ov_specdec.openai.errors import invalid
from ov_specdec.openai.fields import Fields
from ov_specdec.options import MAX_DRAFT_LENGTH
from ov_specdec.text.messages import check_messages
from ov_specdec.text.prompt import Prompt

MAX_CHOICES = 128
MAX_TOP_LOGPROBS = 20
"""Both as in OpenAI's reference."""

MAX_SEED = 2**63

MAX_STOPS, MAX_STOP_LENGTH = 16, 256
"""Stop strings, and characters of each: every one is looked for in every text."""

TEXT_PARTS = ("text", "input_text", "output_text")
"""Types of the parts of a content that are text; the last two are those of /v1/responses."""

MAX_ID_DIGITS = 18
"""Of a token id: Python refuses to read numbers of thousands of digits."""

COMPLETION_TOKENS = 16
"""max_tokens of /v1/completions where it is not given, as in OpenAI's reference."""

CHAT_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "audio": (),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "metadata": ({},),
    "modalities": (["text"],),
    "parallel_tool_calls": (True, False),
    "reasoning_effort": ("none",),
    "response_format": ({"type": "text"},),
    "service_tier": ("auto", "default"),
    "store": (False,),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "verbosity": ("medium",),
    "web_search_options": (),
}
"""Fields of chat completions without a counterpart here, and their values that change nothing."""

COMPLETION_NEUTRAL = {"suffix": ("",)}
"""The same of completions."""


def read_chat(body: object, temperature: float | None = 1.0) -> Ask:
    """The body of /v1/chat/completions; `ApiError` for what cannot be honoured.

    temperature: what an omitted one is; None leaves it to the pipeline.
    """
    fields = Fields(body)
    messages = read_messages(fields.get("messages"))
    options = read_options(fields, temperature)
    max_tokens = fields.integer("max_tokens", low=1)
    newer = fields.integer("max_completion_tokens", low=1)
    if max_tokens is not None and newer is not None and newer != max_tokens:
        raise invalid(
            "max_tokens",
            f"max_tokens={max_tokens} contradicts max_completion_tokens={newer}: leave out one",
        )
    limit_tokens(options, "max_tokens", newer if max_tokens is None else max_tokens)
    options.update(read_template_options(fields))
    logprobs = _chat_logprobs(fields)
    prediction = _read_prediction(fields.get("prediction"))
    if prediction:
        options["reference_texts"] = (prediction,)
    ask = _ask(fields, "chat", (messages,), options, logprobs=logprobs, prediction=prediction)
    fields.neutral(**CHAT_NEUTRAL)
    fields.finish()
    return ask


def read_completion(body: object, temperature: float | None = 1.0) -> Ask:
    """The body of /v1/completions; `ApiError` for what cannot be honoured.

    temperature: what an omitted one is; None leaves it to the pipeline.
    """
    fields = Fields(body)
    prompts = _read_prompts(fields.get("prompt"))
    options = read_options(fields, temperature)
    options["apply_chat_template"] = False
    options.update(_read_languages(fields))
    given = fields.integer("max_tokens", low=1)
    limit_tokens(options, "max_tokens", COMPLETION_TOKENS if given is None else given)
    logprobs = fields.integer("logprobs", low=0, high=MAX_TOP_LOGPROBS)
    echo = fields.flag("echo")
    ask = _ask(fields, "completions", prompts, options, logprobs=logprobs, echo=echo)
    if echo and logprobs is not None:
        options["prompt_logprobs"] = logprobs
    if fields.integer("best_of", low=1) not in (None, ask.n):
        raise invalid("best_of", "best_of is not supported but where it equals n")
    fields.neutral(**COMPLETION_NEUTRAL)
    fields.finish()
    return ask


def _ask(fields: Fields, endpoint: Any, prompts: Any, options: dict[str, Any], **more: Any) -> Ask:
    """What both endpoints read in the same way."""
    stream = fields.flag("stream")
    stream_options = Fields(fields.mapping("stream_options") or {})
    include_usage = stream_options.flag("include_usage")
    stream_options.neutral(include_obfuscation=(False,), continuous_usage_stats=(False,))
    stream_options.finish()
    if fields.get("stream_options") and not stream:
        raise invalid("stream_options", "stream_options has no effect without stream=true")
    origins = fields.flag("return_origins")
    if origins and not stream:
        raise invalid("return_origins", "return_origins has no effect without stream=true")
    if more["logprobs"] is not None:
        options["logprobs"] = more["logprobs"]
    return Ask(
        endpoint=endpoint,
        model=fields.text("model"),
        prompts=prompts,
        options=options,
        n=fields.integer("n", low=1, high=MAX_CHOICES) or 1,
        stream=stream,
        include_usage=include_usage,
        origins=origins,
        user=fields.text("user") or fields.text("safety_identifier"),
        **more,
    )


def read_options(fields: Fields, temperature: float | None) -> dict[str, Any]:
    """The options of a generation among the fields that all endpoints have, under our names."""
    given = fields.number("temperature", low=0.0)
    options: dict[str, Any] = {
        "temperature": temperature if given is None else given,
        "top_p": fields.number("top_p", low=0.0, high=1.0),
        "top_k": fields.integer("top_k", low=-1),
        "min_p": fields.number("min_p", low=0.0, high=1.0),
        "presence_penalty": fields.number("presence_penalty", low=-2.0, high=2.0),
        "frequency_penalty": fields.number("frequency_penalty", low=-2.0, high=2.0),
        "repetition_penalty": fields.number("repetition_penalty", above=0.0),
        "seed": _read_seed(fields),
        "logit_bias": _read_bias(fields.mapping("logit_bias")),
        "stop_strings": _read_stops(fields.get("stop")),
        "min_new_tokens": fields.integer("min_tokens", low=0),
        "ignore_eos": fields.flag("ignore_eos"),
        "num_assistant_tokens": read_draft_length(fields),
        "assistant_confidence_threshold": fields.number(
            "assistant_confidence_threshold", low=0.0, high=1.0
        ),
        "cache_salt": fields.text("cache_salt"),
    }
    if options["top_k"] == -1:  # vLLM's way to keep all
        options["top_k"] = 0
    return _without_unset(options)


def read_messages(messages: Any, name: str = "messages") -> list[dict[str, Any]]:
    """Messages, checked and without what is null in them.

    Parts of a content become one text: most chat templates take nothing else. name: of the field
    that holds them.
    """
    if not isinstance(messages, list) or not messages:
        raise invalid(name, f"{name}={shorten(messages)} must be a list, not empty")
    read = []
    for index, message in enumerate(messages):
        if not isinstance(message, Mapping):
            raise invalid(name, f"{name}[{index}]={shorten(message)} must be an object")
        given = {key: value for key, value in message.items() if value is not None}
        if isinstance(given.get("content"), list):
            given["content"] = _read_parts(f"{name}[{index}]", name, given["content"])
        if given.get("role") == "developer":  # OpenAI's newer name; templates know the older one
            given["role"] = "system"
        read.append(given)
    try:
        return check_messages(read, name)
    except OptionError as error:
        raise invalid(name, str(error)) from error


def _read_parts(where: str, name: str, parts: list[Any]) -> str:
    """The text of the parts of a content."""
    texts = []
    for part in parts:
        text = part.get("text") if isinstance(part, Mapping) else None
        if not isinstance(text, str) or part.get("type") not in TEXT_PARTS:
            raise invalid(
                name, f"{where} holds {shorten(part)}: only parts with text are supported"
            )
        texts.append(text)
    return "\n".join(texts)  # as vLLM does


def read_template_options(fields: Fields) -> dict[str, Any]:
    """What a chat template reads besides the messages."""
    continues = fields.flag("continue_final_message")
    options = {
        "chat_template_kwargs": fields.mapping("chat_template_kwargs") or None,
        "continue_final_message": continues,
    }
    if fields.get("add_generation_prompt") is not None:
        begins = fields.flag("add_generation_prompt")
        if begins and continues:
            raise invalid(
                "add_generation_prompt",
                "add_generation_prompt=true contradicts continue_final_message=true: leave out one",
            )
        return {**_without_unset(options), "add_generation_prompt": begins}
    return _without_unset(options)


def _read_languages(fields: Fields) -> dict[str, Any]:
    """What tells an encoder-decoder model from and into which language to translate."""
    return _without_unset(
        {
            "src_lang": fields.text("src_lang"),
            "tgt_lang": fields.text("tgt_lang"),
            "forced_bos_token_id": fields.integer("forced_bos_token_id", low=0),
        }
    )


def _without_unset(options: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in options.items() if v is not None and v is not False and v != ()}


def limit_tokens(options: dict[str, Any], name: str, max_tokens: int | None) -> None:
    """Set the most tokens to generate, as the field `name` has it; None: what there is room for."""
    options["max_new_tokens"] = max_tokens
    at_least = options.get("min_new_tokens", 0)
    if max_tokens is not None and at_least > max_tokens:
        raise invalid("min_tokens", f"min_tokens={at_least} is more than {name}={max_tokens}")


def _chat_logprobs(fields: Fields) -> int | None:
    """How many tokens to name at each place; None where none are asked for."""
    wanted = fields.flag("logprobs")
    num_top = fields.integer("top_logprobs", low=0, high=MAX_TOP_LOGPROBS)
    if num_top and not wanted:
        raise invalid("top_logprobs", f"top_logprobs={num_top} needs logprobs=true")
    return (num_top or 0) if wanted else None


def _read_prompts(prompt: Any) -> tuple[Prompt, ...]:
    """One prompt or several, each a text or token ids."""
    if _is_prompt(prompt):
        return (prompt,)
    if isinstance(prompt, list) and prompt and all(map(_is_prompt, prompt)):
        return tuple(prompt)
    raise invalid(
        "prompt", f"prompt={shorten(prompt)} must be a text or token ids, or a list of such"
    )


def _is_prompt(value: Any) -> bool:
    if isinstance(value, str):
        return True
    if not isinstance(value, list) or not value:
        return False
    return all(isinstance(token, int) and not isinstance(token, bool) for token in value)


def _read_bias(bias: dict[str, Any] | None) -> dict[int, float] | None:
    if not bias:
        return None
    read = {}
    for token, value in bias.items():
        if not token.isdecimal() or len(token) > MAX_ID_DIGITS:
            raise invalid("logit_bias", f"logit_bias holds {token!r}: keys must be token ids")
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise invalid("logit_bias", f"logit_bias[{token}]={shorten(value)} must be a number")
        if not -100 <= value <= 100:
            raise invalid("logit_bias", f"logit_bias[{token}]={value} must be from -100 to 100")
        read[int(token)] = float(value)
    return read


def _read_stops(stop: Any) -> tuple[str, ...]:
    stops = [stop] if isinstance(stop, str) else stop or []
    if not isinstance(stops, list) or not all(isinstance(text, str) and text for text in stops):
        raise invalid("stop", f"stop={shorten(stop)} must be a text or several, none empty")
    if len(stops) > MAX_STOPS:
        raise invalid("stop", f"stop has {len(stops)} texts: give up to {MAX_STOPS}")
    if (longest := max(map(len, stops), default=0)) > MAX_STOP_LENGTH:
        raise invalid(
            "stop", f"stop has a text of {longest} characters: give up to {MAX_STOP_LENGTH}"
        )
    return tuple(stops)


def _read_seed(fields: Fields) -> int | None:
    """A seed, which may be negative there and may not here."""
    seed = fields.integer("seed", low=-MAX_SEED, high=MAX_SEED - 1)
    return None if seed is None else seed % (2 * MAX_SEED)


def read_draft_length(fields: Fields) -> int | None:
    """num_assistant_tokens; None leaves it to the pipeline, as "auto" does."""
    if fields.get("num_assistant_tokens") == "auto":
        return None
    return fields.integer("num_assistant_tokens", low=0, high=MAX_DRAFT_LENGTH)


def _read_prediction(prediction: Any) -> str | None:
    """OpenAI's predicted output: {"type": "content", "content": a text or text parts}."""
    if prediction is None:
        return None
    content = prediction.get("content") if isinstance(prediction, Mapping) else None
    if isinstance(content, list):
        texts = [part.get("text") for part in content if isinstance(part, Mapping)]
        are_texts = len(texts) == len(content) and all(isinstance(text, str) for text in texts)
        content = "".join(map(str, texts)) if are_texts else None
    if not isinstance(content, str) or prediction.get("type") != "content":
        raise invalid(
            "prediction",
            f"prediction={shorten(prediction)} must have the type 'content' and a text as content",
        )
    return content
