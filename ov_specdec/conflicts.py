"""Options of a generation that contradict or need each other."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from ov_specdec.errors import Option, OptionError

SAMPLING_OPTIONS = ("temperature", "top_k", "top_p", "min_p", "typical_p")
"""Options that only affect sampling."""

CHAT_OPTIONS = (
    *("tools", "chat_template_kwargs"),
    *("add_generation_prompt", "continue_final_message"),
)
"""Options that only affect prompts in a chat template."""

NO_EFFECT = "has no effect with"


class Conflict(NamedTuple):
    """Two options that contradict or need each other: "name=value reason other=value: remedy"."""

    name: str
    reason: str
    other: str
    remedy: str = "leave out one of the two"


def find_conflicts(options: Any) -> Iterator[Conflict]:
    """The conflicts among the options of a generation."""
    if options.ignore_eos and options.eos_token_id is not None:
        yield Conflict("eos_token_id", NO_EFFECT, "ignore_eos")
    if options.do_sample and options.temperature == 0:
        yield Conflict("temperature", "is greedy decoding, so it contradicts", "do_sample")
    for name in SAMPLING_OPTIONS:
        if options.do_sample is False and getattr(options, name) is not None:
            yield Conflict(name, NO_EFFECT, "do_sample")
    if options.choice and options.seed is None:
        yield Conflict("choice", "has no effect without", "seed", "give both")
    if options.tgt_lang is not None and options.forced_bos_token_id is not None:
        yield Conflict("tgt_lang", "contradicts", "forced_bos_token_id")
    number, schedule = "num_assistant_tokens", "num_assistant_tokens_schedule"
    is_auto = options.num_assistant_tokens == "auto"
    if options.num_assistant_tokens_schedule == "constant" and is_auto:
        yield Conflict(schedule, "needs a number, not", number, "give one")
    if options.num_assistant_tokens_schedule == "adaptive" and not is_auto:
        yield Conflict(number, NO_EFFECT, schedule)
    if options.logprobs is None and options.logprobs_mode != "raw_logprobs":
        yield Conflict("logprobs_mode", "has no effect without", "logprobs", "give both")
    if options.cache_salt is not None and not options.cache_prompt:
        yield Conflict("cache_salt", NO_EFFECT, "cache_prompt")
    if options.add_generation_prompt and options.continue_final_message:
        reason = "begins an answer, so it contradicts"
        yield Conflict("add_generation_prompt", reason, "continue_final_message")
    for name in () if options.apply_chat_template else options.chat_options():
        yield Conflict(name, NO_EFFECT, "apply_chat_template")


def require_no_conflict(options: Any) -> None:
    """Refuse options of a generation that contradict each other."""
    for name, reason, other, remedy in find_conflicts(options):
        value = getattr(options, other)
        raise OptionError(
            Option(name, getattr(options, name)),
            f" {reason} ",
            Option(other) if value is None else Option(other, value),
            f": {remedy}",
        )
