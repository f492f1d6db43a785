"""Make samplers from the options of a generation."""

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ov_specdec.errors import LogitsError, OptionError
from ov_specdec.options.conflicts import SAMPLING_OPTIONS
from ov_specdec.options.generation import GenerationOptions
from ov_specdec.sampling.distribution import RandomDecisions
from ov_specdec.sampling.grammar import Grammar
from ov_specdec.sampling.logits import Logits
from ov_specdec.sampling.noise import Noise
from ov_specdec.sampling.processors import (
    BadWords,
    Follower,
    ForcedBos,
    LogitBias,
    LogitsProcessor,
    MinNewTokens,
    NoRepeatNgram,
    OccurrencePenalty,
    RepetitionPenalty,
)
from ov_specdec.sampling.samplers import Sampler
from ov_specdec.sampling.warpers import LogitsWarper


@dataclass(frozen=True)
class UserLogitsProcessor:
    """A user's function as a processor, with a check of its result."""

    function: Callable[..., Any]

    def __call__(self, tokens: Sequence[int], logits: Logits) -> Logits:
        """The function's row; `OptionError` if it is none, or if the function misses an index.

        Raises `LogitsError` if it makes NaN, or more than float32 can hold, of other logits.
        """
        try:  # with copies, because the function may write to its arguments
            row = np.asarray(self.function(list(tokens), logits.copy()))
        except IndexError as error:
            raise OptionError(
                f"{{logits_processor}} {self.function!r} failed ({error}): it gets a list of "
                f"token ids and one row of logits of shape {logits.shape}, without a batch axis",
                logits_processor=...,
            ) from error
        if row.shape != logits.shape or not np.issubdtype(row.dtype, np.floating):
            raise OptionError(
                f"{{logits_processor}} {self.function!r} returned {row.dtype} of shape "
                f"{row.shape}: it must return a row of logits of shape {logits.shape}",
                logits_processor=...,
            )
        peak, most = row.max(), np.finfo(np.float32).max
        if logits.max() <= most and not peak <= most:
            raise LogitsError(
                f"{{logits_processor}} {self.function!r} returned {peak}: it must return numbers "
                "or -inf",
                logits_processor=...,
            )
        return row

    def follow(self, tokens: Sequence[int]) -> None:
        """Pass accepted tokens to a function that keeps state of the text."""
        if isinstance(self.function, Follower):
            self.function.follow(list(tokens))


def make_samplers(
    options: GenerationOptions,
    prompt_length: int,
    eos_token_ids: Set[int],
    prompt_ids: Sequence[int] = (),
    grammar: Grammar | None = None,
) -> tuple[Sampler, Sampler]:
    """The samplers of the main and of the draft model for one generation.

    Without a seed, one random generator takes all decisions. With one, both models share the same
    noise. prompt_length: tokens of the sequence that are not output. prompt_ids: the prompt, which
    for an encoder-decoder model is not part of the sequence. grammar: the last processor.
    """
    processors = make_processors(options, prompt_length, eos_token_ids, prompt_ids)
    if grammar is not None:
        processors += (grammar,)
    greedy = Sampler(processors, eos_token_ids)
    if not options.samples:
        return greedy, greedy
    given = {name: getattr(options, name) for name in SAMPLING_OPTIONS}
    warper = LogitsWarper(**{name: value for name, value in given.items() if value is not None})
    rng: RandomDecisions | Noise = (
        RandomDecisions(np.random.default_rng())
        if options.seed is None
        else Noise(options.seed, options.choice)
    )
    sampler = replace(greedy, warper=warper, rng=rng)
    return sampler, sampler if options.assistant_do_sample else greedy


def make_processors(
    options: GenerationOptions, prompt_length: int, ends: Set[int], prompt_ids: Sequence[int]
) -> tuple[LogitsProcessor, ...]:
    """The processors of the options, in the order of transformers."""
    encoder_size, forced = options.encoder_no_repeat_ngram_size, options.forced_bos_token_id
    min_new_tokens = max(options.min_new_tokens, options.min_tokens)
    chain: list[LogitsProcessor] = []
    if options.logit_bias:
        chain.append(LogitBias(options.logit_bias))
    if options.repetition_penalty != 1.0:
        chain.append(RepetitionPenalty(options.repetition_penalty))
    penalties = options.presence_penalty, options.frequency_penalty
    if any(penalties):
        chain.append(OccurrencePenalty(*penalties, prompt_length))
    if options.no_repeat_ngram_size > 0:
        chain.append(NoRepeatNgram(options.no_repeat_ngram_size))
    if encoder_size > 0:
        chain.append(NoRepeatNgram(encoder_size, prompt_ids))
    if options.bad_words_ids:
        chain.append(BadWords(options.bad_words_ids, ends))
    if min_new_tokens > 0:
        chain.append(MinNewTokens(min_new_tokens, prompt_length, ends))
    if forced is not None:
        chain.append(ForcedBos(forced))
    if options.suppress_tokens:
        chain.append(BadWords([[token] for token in options.suppress_tokens]))
    for function in options.logits_processor:
        own = partial(_call, function) if is_of_transformers(function) else function
        chain.append(UserLogitsProcessor(own))
    return tuple(chain)


def is_of_transformers(function: Callable[..., Any]) -> bool:
    """Whether it is a `transformers.LogitsProcessor`, without importing transformers."""
    names = {(each.__module__, each.__name__) for each in type(function).__mro__}
    return ("transformers.generation.logits_process", "LogitsProcessor") in names


def _call(processor: Callable[..., Any], tokens: Sequence[int], logits: Logits) -> Any:
    """Call a processor of transformers, with torch tensors that have a batch axis."""
    import torch  # installed, since the processor needs it

    ids = torch.tensor([list(tokens)], dtype=torch.long)
    return processor(ids, torch.from_numpy(logits.copy())[None])[0].numpy()
