"""Options of a generation that contradict or need each other."""

from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from ov_specdec.errors import Option, OptionError
from ov_specdec.options.structured import definition_of

CONSTRAINTS = ("json_schema", "json_object", "regex", "choices", "grammar")
"""What the text has to fit: options of which a generation has at most one."""

OF_JSON = CONSTRAINTS[:2]

SAMPLING_OPTIONS = ("temperature", "top_k", "top_p", "min_p", "typical_p")
"""Options that only affect sampling."""

CHAT_OPTIONS = (
    *("tools", "chat_template_kwargs", "reasoning_effort", "thinking_token_budget"),
    *("add_generation_prompt", "continue_final_message"),
)
"""Options that only affect prompts in a chat template."""

NOT_FOR_TEMPLATES = (
    *("messages", "conversations", "chat_template", "tools", "add_generation_prompt"),
    *("continue_final_message", "return_assistant_tokens_mask"),
)
"""Arguments of a chat template that transformers sets from other options."""


def fill(given: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The given options with defaults for the others.

    defaults: those that a `GenerationConfig` sets, including do_sample, unless there is none. None
    counts as not given. If a given option decides about sampling, contradicting defaults do not
    apply.
    """
    own, others = {k: v for k, v in given.items() if v is not None}, {**defaults}
    if "tgt_lang" in own:
        others.pop("forced_bos_token_id", None)  # another language's
    if own.get("ignore_eos"):
        others.pop("eos_token_id", None)
    draws = own.get("do_sample", others.get("do_sample", False))
    if "do_sample" not in own and not own.keys().isdisjoint(SAMPLING_OPTIONS):
        others.pop("do_sample", None)  # the given options imply it
        draws = own.get("temperature") != 0
    for name in () if draws else SAMPLING_OPTIONS:
        others.pop(name, None)
    return {**given, **others, **own}


def require_no_conflict(options: Any) -> Any:
    """The options of a generation, unless some contradict or need each other."""
    if options.max_new_tokens == 0 and options.prompt_logprobs is None:
        needed = "{max_new_tokens} only scores a prompt, so it needs {prompt_logprobs}: give both"
        refuse(options, needed)
    for name in ("min_new_tokens", "min_tokens"):
        if options.max_new_tokens is not None and getattr(options, name) > options.max_new_tokens:
            refuse(options, "{option} is more than {max_new_tokens}: give at most that", name)
    if options.ignore_eos and options.eos_token_id is not None:
        refuse(options, "{eos_token_id} has no effect with {ignore_eos}")
    if options.do_sample and options.temperature == 0:
        refuse(options, "{temperature} is greedy decoding, so it contradicts {do_sample}")
    for name in SAMPLING_OPTIONS:
        if options.do_sample is False and getattr(options, name) is not None:
            refuse(options, "{option} has no effect with {do_sample}", name)
    if options.choice and options.seed is None:
        refuse(options, "{choice} has no effect without {seed}: give both")
    _check_constraints(options)
    if options.tgt_lang is not None and options.forced_bos_token_id is not None:
        refuse(options, "{tgt_lang} contradicts {forced_bos_token_id}")
    schedule = options.num_assistant_tokens_schedule
    is_auto = options.num_assistant_tokens == "auto"
    if schedule == "constant" and is_auto:
        number = "needs a number, not {num_assistant_tokens}: give one"
        refuse(options, "{num_assistant_tokens_schedule} " + number)
    if schedule == "adaptive" and not is_auto:
        refuse(options, "{num_assistant_tokens} has no effect with {num_assistant_tokens_schedule}")
    if options.logprobs is None and options.logprobs_mode != "raw_logprobs":
        refuse(options, "{logprobs_mode} has no effect without {logprobs}: give both")
    if options.cache_salt is not None and not options.cache_prompt:
        refuse(options, "{cache_salt} has no effect with {cache_prompt}")
    if options.add_generation_prompt and options.continue_final_message:
        begins = "{add_generation_prompt} begins an answer, so it contradicts "
        refuse(options, begins + "{continue_final_message}")
    for name in () if options.apply_chat_template else given_chat_options(options):
        refuse(options, "{option} has no effect with {apply_chat_template}", name)
    return options


def _check_constraints(options: Any) -> None:
    """Refuse what contradicts a constraint of the text, or calls of tools."""
    first, second, *_ = *constraints_of(options), "", ""
    if second:
        refuse(options, f"{{option}} is a constraint, and so is {{{second}}}", first)
    if options.ignore_eos:
        ending = given_chat_options(options, ("tools", "thinking_token_budget"))
        for name in [first] * bool(first) + ending:
            refuse(options, "{option} ends the text, so it contradicts {ignore_eos}", name)
    if options.json_whitespace != "compact" and first not in OF_JSON:
        refuse(options, "{json_whitespace} has no effect without {json_schema}: give both")
    if options.tool_choice in ("auto", "none"):
        return
    if not options.tools:
        refuse(options, "{tool_choice} has no effect without {tools}: give both")
    names = [definition_of(tool)["name"] for tool in options.tools]
    if options.tool_choice not in ("required", *names):
        refuse(options, f"{{tool_choice}} names none of the tools: give one of {', '.join(names)}")


def constraints_of(options: Any) -> list[str]:
    """The given ones of `CONSTRAINTS`."""
    return [name for name in CONSTRAINTS if getattr(options, name) not in (None, False, ())]


def given_chat_options(options: Any, names: Iterable[str] = CHAT_OPTIONS) -> list[str]:
    """The given ones of the options that only affect a chat template; 0 is given, False is not.

    No reasoning needs no template.
    """
    return [
        name
        for name in names
        if (value := getattr(options, name)) is not False and value not in (None, (), [], "none")
    ]


def check_template(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Refuse arguments of a chat template that other options set."""
    if taken := [each for each in given if each in NOT_FOR_TEMPLATES]:
        problem = f"{{chat_template_kwargs}} contains '{taken[0]}', which another option sets"
        raise OptionError(f"{problem}: leave it out there", chat_template_kwargs=...)
    return given


def refuse(options: Any, message: str, name: str = "") -> NoReturn:
    """Raise an `OptionError`, with the values of the options that the message names.

    name: of the option that it names `{option}`. Without a remedy, one of two is to be left out.
    """
    values = {each: getattr(options, each) for each in type(options).model_fields}
    named = {each: ... if value is None else value for each, value in values.items()}
    if name:
        named["option"] = Option(name, values[name])
    remedy = "" if ": " in message else ": leave out one of the two"
    raise OptionError(f"{message}{remedy}", **named)
