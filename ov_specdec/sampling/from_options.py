"""Make samplers from the options of a generation."""

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np

from ov_specdec.conflicts import SAMPLING_OPTIONS
from ov_specdec.description import as_tuple
from ov_specdec.errors import Option, OptionError
from ov_specdec.logits import Logits
from ov_specdec.options import GenerationOptions
from ov_specdec.sampling.noise import Noise
from ov_specdec.sampling.processors import (
    BadWords,
    EncoderNoRepeatNgram,
    Follower,
    ForcedBos,
    FrequencyPenalty,
    LogitBias,
    LogitsProcessor,
    MinNewTokens,
    NoRepeatNgram,
    PresencePenalty,
    RepetitionPenalty,
    SuppressTokens,
)
from ov_specdec.sampling.random_source import NumpyRandomSource
from ov_specdec.sampling.samplers import GreedySampler, RandomSampler, Sampler, SeededSampler
from ov_specdec.sampling.torch_processor import TorchProcessor, is_of_transformers
from ov_specdec.sampling.warpers import LogitsWarper


@dataclass(frozen=True)
class Samplers:
    """The samplers of the main model and of a draft model."""

    main: Sampler
    draft: Sampler


@dataclass(frozen=True)
class UserLogitsProcessor:
    """A user's function as a processor, with a check of its result."""

    function: Callable[..., Any]

    def __call__(self, tokens: Sequence[int], logits: Logits) -> Logits:
        """The function's row; `OptionError` if it is none, or if the function misses an index."""
        try:  # with copies, because the function may write to its arguments
            row = np.asarray(self.function(list(tokens), logits.copy()))
        except IndexError as error:
            raise OptionError(
                Option("logits_processor"),
                f" {self.function!r} failed ({error}): it gets a list of token ids and one row of "
                f"logits of shape {logits.shape}, without a batch axis",
            ) from error
        if row.shape != logits.shape or not np.issubdtype(row.dtype, np.floating):
            raise OptionError(
                Option("logits_processor"),
                f" {self.function!r} returned {row.dtype} of shape {row.shape}: "
                f"it must return a row of logits of shape {logits.shape}",
            )
        return row

    def follow(self, tokens: Sequence[int]) -> None:
        """Pass accepted tokens to a function that keeps state of the text."""
        if isinstance(self.function, Follower):
            self.function.follow(list(tokens))


def make_samplers(
    options: GenerationOptions,
    *,
    prompt_length: int,
    eos_token_ids: Set[int],
    prompt_ids: Sequence[int] = (),
) -> Samplers:
    """The samplers for one generation.

    Without a seed, one random generator takes all decisions. With one, both models share the same
    noise. prompt_length: tokens of the sequence that are not output. prompt_ids: the prompt, which
    for an encoder-decoder model is not part of the sequence.
    """
    processors = make_processors(
        options, prompt_length=prompt_length, eos_token_ids=eos_token_ids, prompt_ids=prompt_ids
    )
    greedy = GreedySampler(processors, eos_token_ids)
    if not options.samples:
        return Samplers(greedy, greedy)
    sampler = _drawing(options, processors, eos_token_ids)
    return Samplers(sampler, sampler if options.assistant_do_sample else greedy)


def _drawing(
    options: GenerationOptions, processors: tuple[LogitsProcessor, ...], ends: Set[int]
) -> Sampler:
    """The sampler that draws tokens, with or without a seed."""
    warper = make_warper(options)
    if options.seed is None:
        random = NumpyRandomSource(np.random.default_rng())
        return RandomSampler(processors, warper, random, ends)
    return SeededSampler(processors, warper, Noise(options.seed, options.choice), ends)


def make_warper(options: GenerationOptions) -> LogitsWarper:
    """The warper of the sampling options; options that are not given change nothing."""
    given = {name: getattr(options, name) for name in SAMPLING_OPTIONS}
    return LogitsWarper(**{name: value for name, value in given.items() if value is not None})


def make_processors(
    options: GenerationOptions,
    *,
    prompt_length: int,
    eos_token_ids: Set[int],
    prompt_ids: Sequence[int] = (),
) -> tuple[LogitsProcessor, ...]:
    """The processors of the options, in the order of transformers."""
    bias, words = options.logit_bias, options.bad_words_ids
    encoder_size, forced = options.encoder_no_repeat_ngram_size, options.forced_bos_token_id
    suppressed = as_tuple(options.suppress_tokens)
    chain: list[tuple[bool, LogitsProcessor]] = [
        (bool(bias), LogitBias(bias or {})),
        (options.repetition_penalty != 1.0, RepetitionPenalty(options.repetition_penalty)),
        (options.presence_penalty != 0.0, PresencePenalty(options.presence_penalty, prompt_length)),
        (
            options.frequency_penalty != 0.0,
            FrequencyPenalty(options.frequency_penalty, prompt_length),
        ),
        (options.no_repeat_ngram_size > 0, NoRepeatNgram(options.no_repeat_ngram_size)),
        (encoder_size > 0, EncoderNoRepeatNgram(encoder_size, prompt_ids)),
        (bool(words), BadWords(words, eos_token_ids)),
        (
            options.min_new_tokens > 0,
            MinNewTokens(options.min_new_tokens, prompt_length, eos_token_ids),
        ),
        (forced is not None, ForcedBos(forced or 0)),
        (bool(suppressed), SuppressTokens(suppressed)),
    ]
    own = (
        UserLogitsProcessor(TorchProcessor(each) if is_of_transformers(each) else each)
        for each in options.logits_processor
    )
    return (*(processor for wanted, processor in chain if wanted), *own)
