"""Which candidates are accepted: decided by the main model's distributions alone."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ov_specdec.logits import Logits
from ov_specdec.sampling.distribution import Distribution, certain, residual
from ov_specdec.sampling.random_source import RandomSource
from ov_specdec.sampling.samplers import Sampler


@dataclass(frozen=True)
class Draft:
    """Candidates. probs: the distribution that each was drawn from; None if none was drawn."""

    tokens: list[int]
    probs: list[Distribution] | None = None


@dataclass(frozen=True)
class VerificationResult:
    """The first `num_accepted` candidates are accepted, and `next_token` follows them.

    next_token: the main model's own choice: the correction of the first candidate that was
    rejected, or the bonus token where all of them were accepted.
    """

    num_accepted: int
    next_token: int


def verify(
    sampler: Sampler, tokens: Sequence[int], logits: Logits, draft: Draft
) -> VerificationResult:
    """Which candidates of the draft are accepted after `tokens`, and what follows them.

    logits: [len(draft.tokens) + 1, vocab], from the main model; row i scores the token in the place
    of candidate i, the last row the one after all of them. Rows after a rejection are not looked
    at. With an empty draft, this is how plain decoding chooses its next token. Raises
    `LogitsError` for a row that gives no distribution.
    """
    history = list(tokens)

    def main(index: int) -> Distribution:
        history[len(tokens) :] = draft.tokens[:index]
        return sampler.distribution(history, logits[index])

    draft_probs = draft.probs or [certain(token) for token in draft.tokens]
    return speculative_sampling(main, draft_probs, draft.tokens, sampler.random)


def speculative_sampling(
    main: Callable[[int], Distribution],
    draft: Sequence[Distribution],
    candidates: Sequence[int],
    random: RandomSource,
) -> VerificationResult:
    """Accept candidates so that the tokens kept follow the main model's distribution.

    main: gives the main model's distribution for the place of candidate i, or, at
    len(candidates), for the place after all of them; called once each, in order, and not beyond
    the first rejection. draft: the distribution that each candidate was drawn from (`certain`
    where it was not drawn). Greedy decoding is the case where main is `certain` everywhere.
    Source: Leviathan et al., algorithm 1 (arXiv 2211.17192); Chen et al., algorithm 2
    (arXiv 2302.01318).
    """
    for index, candidate in enumerate(candidates):
        main_probs, draft_probs = main(index), draft[index]
        probability = acceptance_probability(
            main_probs.prob(candidate), draft_probs.prob(candidate)
        )
        if not random.accept(probability):
            return VerificationResult(index, random.draw(residual(main_probs, draft_probs)))
    return VerificationResult(len(candidates), random.draw(main(len(candidates))))


def acceptance_probability(main_prob: float, draft_prob: float) -> float:
    """How probable it is that a candidate is accepted: min(1, main_prob / draft_prob)."""
    # A candidate that was drawn has a draft_prob above 0.
    return 1.0 if main_prob >= draft_prob else main_prob / draft_prob
