"""Counts of tokens and statistics of speculation, as parts of answers."""

from collections.abc import Sequence

from ov_specdec.openai.answer import Ask
from ov_specdec.openai.part import Maybe, Part
from ov_specdec.results.stats import GenerationStats

MATCHES = "suffix"
"""The source of draft tokens that a prediction extends."""


class CachedTokens(Part):
    """Cached tokens of a prompt."""

    cached_tokens: int


class PredictedTokens(Part):
    """Draft tokens from matches, for a request with a prediction."""

    accepted_prediction_tokens: int
    rejected_prediction_tokens: int


class TokenCounts(Part):
    """Counts of tokens."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class Usage(TokenCounts):
    """Counts of tokens, with cached and predicted ones."""

    prompt_tokens_details: CachedTokens
    completion_tokens_details: Maybe[PredictedTokens] = None


class Speculation(Part):
    """Statistics of speculation, in vLLM's shape."""

    mean_acceptance_length: float
    draft_acceptance_rate: float
    acceptance_histogram: list[int]
    num_spec_steps: int
    num_spec_tokens: int
    num_draft_tokens: int
    num_accepted_draft_tokens: int


class SpeculationMetrics(Part):
    """Measurements of an answer with a single choice and draft tokens."""

    speculative_decoding: Speculation


def count(prompt_tokens: int, completion_tokens: int) -> TokenCounts:
    """The counts of a prompt and its output."""
    return TokenCounts(
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
        total_tokens=prompt_tokens + completion_tokens,
    )


def make_usage(ask: Ask, stats: Sequence[GenerationStats]) -> Usage:
    """Counts of tokens. stats: of all choices; those of one prompt count it once."""
    first = stats[:: ask.n]
    counts = count(
        sum(each.prompt_tokens for each in first), sum(each.generated_tokens for each in stats)
    )
    return Usage(
        **vars(counts),
        prompt_tokens_details=CachedTokens(cached_tokens=sum(each.cached_tokens for each in first)),
        completion_tokens_details=_predicted(stats) if ask.has_prediction else None,
    )


def _predicted(stats: Sequence[GenerationStats]) -> PredictedTokens:
    """Draft tokens from matches, in the prediction or in the text so far."""
    rounds = [r for each in stats for r in each.rounds if r.source == MATCHES]
    accepted = sum(r.num_accepted for r in rounds)
    return PredictedTokens(
        accepted_prediction_tokens=accepted,
        rejected_prediction_tokens=sum(r.num_drafted for r in rounds) - accepted,
    )


def make_metrics(stats: Sequence[GenerationStats]) -> SpeculationMetrics | None:
    """Statistics of speculation; None for several choices or without draft tokens.

    Only rounds with draft tokens count, and only their tokens within the text.
    """
    rounds = [r for r in stats[0].rounds if r.num_drafted] if len(stats) == 1 else []
    if not rounds:
        return None
    accepted = [r.num_accepted for r in rounds]
    longest = max(r.num_drafted for r in rounds)
    num_drafted = sum(r.num_drafted for r in rounds)
    return SpeculationMetrics(
        speculative_decoding=Speculation(
            mean_acceptance_length=1 + sum(accepted) / len(rounds),
            draft_acceptance_rate=sum(accepted) / num_drafted,
            acceptance_histogram=[accepted.count(length) for length in range(longest + 1)],
            num_spec_steps=len(rounds),
            num_spec_tokens=longest,
            num_draft_tokens=num_drafted,
            num_accepted_draft_tokens=sum(accepted),
        )
    )
