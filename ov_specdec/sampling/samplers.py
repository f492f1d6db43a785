"""`Sampler` chooses tokens from logits: greedy, random, or by the noise of a seed.

One sampler serves plain decoding, drafting and verification, so all three have the same
distributions: every row goes through the same processors, with the history of plain decoding.
"""

import math
from collections.abc import Sequence, Set
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from ov_specdec.options.conflicts import SAMPLING_OPTIONS
from ov_specdec.options.generation import GenerationOptions
from ov_specdec.sampling.distribution import Distribution, RandomDecisions
from ov_specdec.sampling.grammar import Grammar
from ov_specdec.sampling.logits import Logits, check_row
from ov_specdec.sampling.noise import Noise
from ov_specdec.sampling.processors import (
    BadWords,
    ForcedBos,
    LogitBias,
    LogitsProcessor,
    MinNewTokens,
    NoRepeatNgram,
    OccurrencePenalty,
    RepetitionPenalty,
    UserLogitsProcessor,
)
from ov_specdec.sampling.warpers import LogitsWarper


class Chosen(NamedTuple):
    """A chosen token.

    drawn_from: its distribution, if it was drawn at random. confidence: how likely another model is
    to choose it too, from 0 to 1; None if unknown.
    """

    token: int
    drawn_from: Distribution | None = None
    confidence: float | None = None


@dataclass(frozen=True)
class Sampler:
    """Chooses tokens from logits.

    processors: every row goes through them first. ends: tokens that end a text; nothing is sampled
    after them. warper: turns the processed row into a distribution. rng: of the draw, random or
    a seed's noise; None takes the most likely token of the processed row.

    With noise the choice is deterministic: as in greedy decoding, a draft token is accepted if it
    is the same token. Source: Daliri et al., algorithm 1 (arXiv 2408.07978).
    """

    processors: tuple[LogitsProcessor, ...] = ()
    ends: Set[int] = frozenset()
    warper: LogitsWarper = field(default_factory=LogitsWarper)
    rng: RandomDecisions | Noise | None = None

    def sample(self, tokens: Sequence[int], row: Logits) -> Chosen:
        """Choose the token after `tokens`.

        row: logits [vocab]. Raises `LogitsError` for a row that gives no distribution.
        """
        if self.rng is None:
            row = process(self.processors, tokens, row)
            token = int(row.argmax())  # of ties the lowest id, of NaN its own
            if not math.isfinite(row[token]):
                check_row(row)  # which raises
            return Chosen(token)
        distribution = self.distribution(tokens, row)
        if isinstance(self.rng, RandomDecisions):
            return Chosen(self.rng.draw(distribution), distribution)
        token, confidence = self.rng.draw(distribution, len(tokens))
        return Chosen(token, confidence=confidence)

    def distribution(self, tokens: Sequence[int], row: Logits) -> Distribution:
        """The distribution from which it draws; raises as `sample` does."""
        return self.warper(process(self.processors, tokens, row))


def process(processors: Sequence[LogitsProcessor], tokens: Sequence[int], row: Logits) -> Logits:
    """A row of logits [vocab] after all processors."""
    for processor in processors:
        row = processor(tokens, row)
    return row


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
    chain += map(UserLogitsProcessor, options.logits_processor)
    return tuple(chain)
