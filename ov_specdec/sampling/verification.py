"""Verification: accept draft tokens so that the output follows the main model's distribution."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ov_specdec.sampling.distribution import (
    Distribution,
    RandomDecisions,
    excess,
    one_hot,
    residual,
)
from ov_specdec.sampling.logits import Logits
from ov_specdec.sampling.samplers import Sampler


class Draft(NamedTuple):
    """Draft tokens. probs: the distribution that each was drawn from; None if none was drawn."""

    tokens: list[int]
    probs: list[Distribution] | None = None

    def after(self, forced: Sequence[int]) -> "Draft":
        """The draft behind tokens that a grammar forces, which are always accepted."""
        probs = None if self.probs is None else [*map(one_hot, forced), *self.probs]
        return Draft([*forced, *self.tokens], probs)


class VerificationResult(NamedTuple):
    """The first `num_accepted` draft tokens are accepted, and `next_token` follows them.

    next_token: the main model's own choice: the correction of the first rejected draft token, or
    the bonus token if all were accepted.
    """

    num_accepted: int
    next_token: int


def verify(
    sampler: Sampler, tokens: Sequence[int], logits: Logits, draft: Draft
) -> VerificationResult:
    """Verify draft tokens after `tokens`, and choose the token that follows the accepted ones.

    logits: [len(draft.tokens) + 1, vocab], from the main model; row i scores the position of draft
    token i, the last row the position after all of them. Rows after a draft token that the main
    model cannot choose, or that ends the text, are ignored. With an empty draft, this is plain
    decoding. A deterministic sampler accepts draft tokens that it chooses too. Raises `LogitsError`
    for a row that gives no distribution.
    """
    if isinstance(sampler.rng, RandomDecisions):
        return _verify_random(sampler, sampler.rng, tokens, logits, draft)
    history = list(tokens)
    for index, draft_token in enumerate(draft.tokens):
        chosen = sampler.sample(history, logits[index]).token
        if chosen != draft_token:
            return VerificationResult(index, chosen)
        if chosen in sampler.ends:  # the text ends here
            return VerificationResult(index + 1, chosen)
        history.append(chosen)
    num_accepted = len(draft.tokens)
    return VerificationResult(num_accepted, sampler.sample(history, logits[num_accepted]).token)


def _verify_random(
    sampler: Sampler, random: RandomDecisions, tokens: Sequence[int], logits: Logits, draft: Draft
) -> VerificationResult:
    """Verify for a random sampler, by distributions.

    Drawn draft tokens are verified as a block. For others a block accepts no more than verification
    one by one, and takes longer.
    """
    history = list(tokens)

    def main(index: int) -> Distribution:
        if index and draft.tokens[index - 1] in sampler.ends:
            return one_hot(draft.tokens[index - 1])  # unused: the text has ended
        history[len(tokens) :] = draft.tokens[:index]
        return sampler.distribution(history, logits[index])

    if draft.probs:
        return verify_block(main, draft.probs, draft.tokens, random)
    one_hots = [one_hot(token) for token in draft.tokens]
    return verify_tokens(main, one_hots, draft.tokens, random)


def verify_tokens(
    main: Callable[[int], Distribution],
    draft: Sequence[Distribution],
    draft_tokens: Sequence[int],
    random: RandomDecisions,
) -> VerificationResult:
    """Accept draft tokens one by one so that the tokens kept follow the main model's distribution.

    main: returns p, the main model's distribution at draft token i, or, at len(draft_tokens), after
    all of them; called once each, in order, and not beyond the first rejection. draft: q, the
    distribution that each draft token was drawn from (`one_hot` if it was not drawn).
    Source: Leviathan et al., algorithm 1 (arXiv 2211.17192); Chen et al., algorithm 2
    (arXiv 2302.01318), with p and q swapped.
    """
    for index, draft_token in enumerate(draft_tokens):
        p, q = main(index), draft[index]
        ratio = p.prob(draft_token) / q.prob(draft_token)  # q > 0, as the token was drawn from it
        if not random.accept(min(ratio, 1.0)):
            return VerificationResult(index, random.draw(residual(p, q)))
    return VerificationResult(len(draft_tokens), random.draw(main(len(draft_tokens))))


def verify_block(
    main: Callable[[int], Distribution],
    draft: Sequence[Distribution],
    draft_tokens: Sequence[int],
    random: RandomDecisions,
) -> VerificationResult:
    """Verify a draft as a block: the same distribution, and never fewer accepted tokens.

    A draft token with p/q above 1 may compensate for an earlier one below 1, so all ratios are
    computed before any is rejected. Parameters: see `verify_tokens`; main is not called beyond a
    draft token of probability 0.
    Source: Sun et al., algorithm 2 (arXiv 2403.10444), where `ratios[i]` is p_i, `main_probs` M_b
    and `draft` M_s. It keeps the longest prefix that passes; here prefixes are tried from the
    longest, and the first that passes is kept.
    """
    main_probs, ratios = list[Distribution](), [1.0]
    for index, draft_token in enumerate(draft_tokens):
        main_probs.append(main(index))
        ratio = main_probs[index].prob(draft_token) / draft[index].prob(draft_token)
        ratios.append(min(ratios[index] * ratio, 1.0))
        if ratios[-1] == 0.0:
            break  # longer prefixes have probability 0 too
    if random.accept(ratios[-1]):
        return VerificationResult(len(draft_tokens), random.draw(main(len(draft_tokens))))
    length = len(main_probs) - 1
    while length > 0 and not random.accept(
        prefix_probability(main_probs[length], draft[length], ratios[length])
    ):
        length -= 1
    rest = residual(main_probs[length], draft[length], ratios[length])
    return VerificationResult(length, random.draw(rest))


def prefix_probability(main: Distribution, draft: Distribution, ratio: float) -> float:
    """The probability that exactly this prefix is accepted, if no longer one is: h_i of Sun et al.

    main, draft: distributions after the prefix. ratio: their p_i, the ratio of its probabilities,
    capped at 1 after each token.
    """
    mass = float(excess(main, draft, ratio).sum())
    return mass / (mass + (1.0 - ratio)) if mass > 0.0 else 0.0
