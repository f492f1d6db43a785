"""Options of a generation that contradict or need each other."""

from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from ov_specdec.errors import Option, OptionError
from ov_specdec.options.structured import OF_JSON, constraints_of, definition_of

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

NO_EFFECT, BOTH = "has no effect with", "give both"


def require_no_conflict(options: Any) -> None:
    """Refuse options of a generation that contradict or need each other."""
    if options.max_new_tokens == 0 and options.prompt_logprobs is None:
        reason = "only scores a prompt, so it needs"
        refuse(options, "max_new_tokens", reason, "prompt_logprobs", BOTH)
    for name in ("min_new_tokens", "min_tokens"):
        if options.max_new_tokens is not None and getattr(options, name) > options.max_new_tokens:
            refuse(options, name, "is more than", "max_new_tokens", "give at most that")
    if options.ignore_eos and options.eos_token_id is not None:
        refuse(options, "eos_token_id", NO_EFFECT, "ignore_eos")
    if options.do_sample and options.temperature == 0:
        refuse(options, "temperature", "is greedy decoding, so it contradicts", "do_sample")
    for name in SAMPLING_OPTIONS:
        if options.do_sample is False and getattr(options, name) is not None:
            refuse(options, name, NO_EFFECT, "do_sample")
    if options.choice and options.seed is None:
        refuse(options, "choice", "has no effect without", "seed", BOTH)
    constraints = constraints_of(options)
    if len(constraints) > 1:
        refuse(options, constraints[0], "is a constraint, and so is", constraints[1])
    ending = [*constraints, *given_chat_options(options, ("tools", "thinking_token_budget"))]
    for name in ending if options.ignore_eos else ():
        refuse(options, name, "ends the text, so it contradicts", "ignore_eos")
    if options.json_whitespace != "compact" and not {*constraints} & {*OF_JSON}:
        refuse(options, "json_whitespace", "has no effect without", "json_schema", BOTH)
    if options.tool_choice not in ("auto", "none") and not options.tools:
        refuse(options, "tool_choice", "has no effect without", "tools", BOTH)
    names = [definition_of(tool)["name"] for tool in options.tools]
    if options.tool_choice not in ("auto", "none", "required", *names):
        reason = f" names none of the tools: give one of {', '.join(names)}"
        raise OptionError(Option("tool_choice", options.tool_choice), reason)
    if options.tgt_lang is not None and options.forced_bos_token_id is not None:
        refuse(options, "tgt_lang", "contradicts", "forced_bos_token_id")
    number, schedule = "num_assistant_tokens", "num_assistant_tokens_schedule"
    is_auto = options.num_assistant_tokens == "auto"
    if options.num_assistant_tokens_schedule == "constant" and is_auto:
        refuse(options, schedule, "needs a number, not", number, "give one")
    if options.num_assistant_tokens_schedule == "adaptive" and not is_auto:
        refuse(options, number, NO_EFFECT, schedule)
    if options.logprobs is None and options.logprobs_mode != "raw_logprobs":
        refuse(options, "logprobs_mode", "has no effect without", "logprobs", BOTH)
    if options.cache_salt is not None and not options.cache_prompt:
        refuse(options, "cache_salt", NO_EFFECT, "cache_prompt")
    if options.add_generation_prompt and options.continue_final_message:
        reason = "begins an answer, so it contradicts"
        refuse(options, "add_generation_prompt", reason, "continue_final_message")
    for name in () if options.apply_chat_template else given_chat_options(options):
        refuse(options, name, NO_EFFECT, "apply_chat_template")


def given_chat_options(options: Any, names: Iterable[str] = CHAT_OPTIONS) -> list[str]:
    """The names of the given options that only affect a chat template."""
    values = {name: getattr(options, name) for name in names}
    return [k for k, v in values.items() if v is not None and v is not False and v not in ((), [])]


def check_template(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Refuse arguments of a chat template that other options set."""
    if taken := [each for each in given if each in NOT_FOR_TEMPLATES]:
        raise OptionError(
            Option("chat_template_kwargs"),
            f" contains '{taken[0]}', which another option sets: leave it out there",
        )
    return given


def refuse(
    options: Any, name: str, reason: str, other: str, remedy: str = "leave out one of the two"
) -> NoReturn:
    """Raise "name=value reason other=value: remedy"."""
    value = getattr(options, other)
    raise OptionError(
        Option(name, getattr(options, name)),
        f" {reason} ",
        Option(other) if value is None else Option(other, value),
        f": {remedy}",
    )
