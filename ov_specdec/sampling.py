"""From the options of a generation to the rules by which its tokens are chosen."""

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np

from ov_specdec.config import GenerationOptions, as_tuple
from ov_specdec.dice import RandomDice
from ov_specdec.errors import OptionError
from ov_specdec.processors import (
    BadWords,
    FrequencyPenalty,
    LogitBias,
    MinNewTokens,
    NoRepeatNgram,
    PresencePenalty,
    Processor,
    RepetitionPenalty,
    SuppressTokens,
)
from ov_specdec.rules import GreedyRule, Rule, SamplingRule
from ov_specdec.session import Logits
from ov_specdec.warp import Warp


@dataclass(frozen=True)
class Rules:
    """How the main model's tokens and a draft model's candidates are chosen."""

    main: Rule
    draft: Rule


@dataclass(frozen=True)
class UserProcessor:
    """A user's function as a processor; what it returns is checked."""

    function: Callable[..., Any]

    def __call__(self, tokens: Sequence[int], logits: Logits) -> Logits:
        """The function's row; `OptionError` if it is not a row of logits."""
        # A copy, so that a function that writes to its argument does no harm.
        row = np.asarray(self.function(tokens, logits.copy()))
        if row.shape != logits.shape or not np.issubdtype(row.dtype, np.floating):
            raise OptionError(
                f"logits_processor {self.function!r} returned {row.dtype} of shape {row.shape}: "
                f"it must return a row of logits of shape {logits.shape}"
            )
        return row


def make_rules(options: GenerationOptions, *, prompt_length: int, eos_token_ids: Set[int]) -> Rules:
    """The rules for one generation. One random generator serves all of its decisions."""
    processors = make_processors(options, prompt_length=prompt_length, eos_token_ids=eos_token_ids)
    greedy = GreedyRule(processors)
    if not options.samples:
        return Rules(greedy, greedy)
    sampling = SamplingRule(
        processors, make_warp(options), RandomDice(np.random.default_rng(options.seed))
    )
    return Rules(sampling, sampling if options.assistant_do_sample else greedy)


def make_warp(options: GenerationOptions) -> Warp:
    """The warping that the sampling options ask for; one that is not given changes nothing."""
    names = ("temperature", "top_k", "top_p", "min_p", "typical_p")
    given = {name: getattr(options, name) for name in names}
    return Warp(**{name: value for name, value in given.items() if value is not None})


def make_processors(
    options: GenerationOptions, *, prompt_length: int, eos_token_ids: Set[int]
) -> tuple[Processor, ...]:
    """The processors that the options ask for, in the order of transformers."""
    bias, words = options.logit_bias, options.bad_words_ids
    suppressed = as_tuple(options.suppress_tokens)
    chain: list[tuple[bool, Processor]] = [
        (bool(bias), LogitBias(bias or {})),
        (options.repetition_penalty != 1.0, RepetitionPenalty(options.repetition_penalty)),
        (options.presence_penalty != 0.0, PresencePenalty(options.presence_penalty, prompt_length)),
        (
            options.frequency_penalty != 0.0,
            FrequencyPenalty(options.frequency_penalty, prompt_length),
        ),
        (options.no_repeat_ngram_size > 0, NoRepeatNgram(options.no_repeat_ngram_size)),
        (bool(words), BadWords(words, eos_token_ids)),
        (
            options.min_new_tokens > 0,
            MinNewTokens(options.min_new_tokens, prompt_length, eos_token_ids),
        ),
        (bool(suppressed), SuppressTokens(suppressed)),
    ]
    own = (UserProcessor(function) for function in options.logits_processor)
    return (*(processor for wanted, processor in chain if wanted), *own)
