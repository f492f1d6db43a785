"""Options of a generation that contradict or need each other."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from ov_specdec.errors import Option, OptionError

SAMPLING_OPTIONS = ("temperature", "top_k", "top_p", "min_p", "typical_p")
"""Options that only affect sampling."""

CHAT_OPTIONS = (
    *("tools", "chat_template_kwargs"),
    *("add_generation_prompt", "continue_final_message"),
)
"""Options that only affect prompts in a chat template."""


@dataclass(frozen=True)
class Conflict:
    """Two options that do not go together: "name=value reason other=value: remedy".

    holds: whether the options of a generation have it.
    """

    name: str
    reason: str
    other: str
    holds: Callable[[Any], bool]
    remedy: str = "leave out one of the two"


def _has_no_draw(name: str, options: Any) -> bool:
    """Whether an option is given without sampling."""
    return options.do_sample is False and getattr(options, name) is not None


def _has_no_template(name: str, options: Any) -> bool:
    """Whether an option is given without a chat template."""
    return not options.apply_chat_template and name in options.chat_options()


CONFLICTS = (
    Conflict(
        *("eos_token_id", "has no effect with", "ignore_eos"),
        lambda options: options.ignore_eos and options.eos_token_id is not None,
    ),
    Conflict(
        *("temperature", "is greedy decoding, so it contradicts", "do_sample"),
        lambda options: options.do_sample and options.temperature == 0,
    ),
    *(
        Conflict(
            *(name, "has no effect with", "do_sample"),
            partial(_has_no_draw, name),
        )
        for name in SAMPLING_OPTIONS
    ),
    Conflict(
        *("choice", "has no effect without", "seed"),
        lambda options: options.choice and options.seed is None,
        "give both",
    ),
    Conflict(
        *("tgt_lang", "contradicts", "forced_bos_token_id"),
        lambda options: options.tgt_lang is not None and options.forced_bos_token_id is not None,
    ),
    Conflict(
        *("num_assistant_tokens_schedule", "needs a number, not", "num_assistant_tokens"),
        lambda options: (
            options.num_assistant_tokens_schedule == "constant"
            and options.num_assistant_tokens == "auto"
        ),
        "give one",
    ),
    Conflict(
        *("num_assistant_tokens", "has no effect with", "num_assistant_tokens_schedule"),
        lambda options: (
            options.num_assistant_tokens_schedule == "adaptive"
            and options.num_assistant_tokens != "auto"
        ),
    ),
    Conflict(
        *("logprobs_mode", "has no effect without", "logprobs"),
        lambda options: options.logprobs is None and options.logprobs_mode != "raw_logprobs",
        "give both",
    ),
    Conflict(
        *("cache_salt", "has no effect with", "cache_prompt"),
        lambda options: options.cache_salt is not None and not options.cache_prompt,
    ),
    Conflict(
        *("add_generation_prompt", "begins an answer, so it contradicts", "continue_final_message"),
        lambda options: options.add_generation_prompt and options.continue_final_message,
    ),
    *(
        Conflict(
            *(name, "has no effect with", "apply_chat_template"),
            partial(_has_no_template, name),
        )
        for name in CHAT_OPTIONS
    ),
)


def require_no_conflict(options: Any) -> None:
    """Refuse options of a generation that contradict each other."""
    for conflict in CONFLICTS:
        if conflict.holds(options):
            value = getattr(options, conflict.other)
            raise OptionError(
                Option(conflict.name, getattr(options, conflict.name)),
                f" {conflict.reason} ",
                Option(conflict.other) if value is None else Option(conflict.other, value),
                f": {conflict.remedy}",
            )
