"""Speculative sampling changes nothing about the distribution: laws enumerated, not sampled."""

import itertools
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
import pytest
from numpy.typing import ArrayLike

from ov_specdec.sampling import verification
from ov_specdec.sampling.distribution import Distribution, RandomDecisions, one_hot
from ov_specdec.sampling.verification import VerificationResult, verify_block, verify_tokens
from tests.support.enumeration import enumerate_outcomes

Tokens = tuple[int, ...]
Model = Callable[[Tokens], Distribution]
OutputProbs = dict[Tokens, float]
DraftKind = Literal["sampled", "certain", "mixed"]
Rule = Callable[
    [Callable[[int], Distribution], Sequence[Distribution], Sequence[int], RandomDecisions],
    VerificationResult,
]

EXACT = 1e-12
RULES = ("verify_tokens", "verify_block")


def random_model(vocab: int, seed: int) -> Model:
    """A distribution for every history; some tokens have none of it, which ones differs."""

    def model(history: Tokens) -> Distribution:
        rng = np.random.default_rng([seed, *history])
        weights = rng.exponential(size=vocab) * rng.integers(0, 2, vocab)
        weights[rng.integers(vocab)] += 1.0
        return as_distribution(weights, sparse=bool(rng.integers(2)))

    return model


def as_distribution(weights: ArrayLike, *, sparse: bool = False) -> Distribution:
    probs = np.asarray(weights, dtype=np.float64) / np.sum(weights)
    ids = np.flatnonzero(probs) if sparse else None
    return Distribution(ids, probs if ids is None else probs[ids])


def constant(*weights: float) -> Model:
    return lambda _: as_distribution(list(weights))


HAND_MADE: dict[str, tuple[int, Model, Model]] = {
    "alike": (4, constant(4, 3, 2, 1), constant(3, 4, 1, 2)),
    "the same": (4, constant(4, 3, 2, 1), constant(4, 3, 2, 1)),
    "apart": (4, constant(1, 1, 0, 0), constant(0, 0, 1, 3)),
    "draft where the main is zero": (5, constant(0, 0, 5, 3, 2), constant(5, 1, 2, 2, 0)),
    "main certain": (4, constant(0, 1, 0, 0), constant(1, 1, 1, 1)),
    "draft certain": (4, constant(1, 2, 3, 4), constant(0, 0, 1, 0)),
    "extreme": (4, constant(1, 1e-9, 1e-300, 1), constant(1e-300, 1, 1, 1e-9)),
    "by history, 4": (4, random_model(4, 1), random_model(4, 2)),
    "by history, 5": (5, random_model(5, 3), random_model(5, 4)),
}


def speculate_once(
    rule: str, main: Model, draft: Model, kind: DraftKind, length: int
) -> Callable[[RandomDecisions], Tokens]:
    """One round: a draft of `length` draft tokens, and the tokens that come out."""

    def run(random: RandomDecisions) -> Tokens:
        draft_tokens: list[int] = []
        draft_probs = []
        for index in range(length):
            probs = draft(tuple(draft_tokens))
            if kind == "certain" or (kind == "mixed" and index % 2 == 0):
                probs = one_hot(probs.token(int(probs.probs.argmax())))
            draft_probs.append(probs)
            draft_tokens.append(random.draw(probs))
        verify: Rule = getattr(verification, rule)
        result = verify(
            lambda index: main(tuple(draft_tokens[:index])), draft_probs, draft_tokens, random
        )
        return (*draft_tokens[: result.num_accepted], result.next_token)

    return run


def plain_output_probs(main: Model, vocab: int, length: int) -> OutputProbs:
    """The main model's own distribution of `length` tokens."""
    return complete({(): 1.0}, main, vocab, length)


def complete(outcomes: OutputProbs, main: Model, vocab: int, length: int) -> OutputProbs:
    """The distribution of `length` tokens: an outcome, and plain decoding after it."""
    result = dict.fromkeys(itertools.product(range(vocab), repeat=length), 0.0)
    while outcomes:
        longer: OutputProbs = {}
        for tokens, probability in outcomes.items():
            if len(tokens) == length:
                result[tokens] += probability
                continue
            probs = main(tokens)
            for token in range(vocab):
                extended = (*tokens, token)
                longer[extended] = longer.get(extended, 0.0) + probability * probs.prob(token)
        outcomes = longer
    return result


def distance(rule: str, case: str, kind: DraftKind, length: int) -> float:
    """The greatest difference between the main model's distribution and that of speculation."""
    vocab, main, draft = HAND_MADE[case]
    outcomes = enumerate_outcomes(speculate_once(rule, main, draft, kind, length))
    speculative = complete(outcomes, main, vocab, length + 1)
    plain = plain_output_probs(main, vocab, length + 1)
    assert sum(plain.values()) == pytest.approx(1.0, abs=EXACT)
    assert speculative.keys() == plain.keys()
    return max(abs(speculative[tokens] - plain[tokens]) for tokens in plain)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("length", [0, 1, 2, 3])
@pytest.mark.parametrize("kind", ["sampled", "certain", "mixed"])
@pytest.mark.parametrize("case", HAND_MADE)
def test_the_law_of_a_round_is_the_main_models(
    case: str, kind: DraftKind, length: int, rule: str
) -> None:
    assert distance(rule, case, kind, length) < EXACT


def mean_accepted(rule: str, main: Model, draft: Model, kind: DraftKind, length: int) -> float:
    """How many draft tokens of a draft are accepted on average."""
    outcomes = enumerate_outcomes(speculate_once(rule, main, draft, kind, length))
    return sum((len(tokens) - 1) * prob for tokens, prob in outcomes.items())


def test_the_papers_example_of_what_a_block_gains() -> None:
    main, draft = constant(1, 2), constant(2, 1)
    assert mean_accepted("verify_tokens", main, draft, "sampled", 2) == pytest.approx(10 / 9)
    assert mean_accepted("verify_block", main, draft, "sampled", 2) == pytest.approx(11 / 9)


@pytest.mark.parametrize("length", [1, 2, 3])
@pytest.mark.parametrize("case", HAND_MADE)
def test_a_block_never_accepts_fewer_and_as_many_of_certain_tokens(case: str, length: int) -> None:
    _, main, draft = HAND_MADE[case]

    def gain(kind: DraftKind) -> float:
        tokens, block = (mean_accepted(rule, main, draft, kind, length) for rule in RULES)
        return block - tokens

    assert gain("sampled") > -EXACT
    assert length > 1 or abs(gain("sampled")) < EXACT
    assert abs(gain("certain")) < EXACT


@pytest.mark.parametrize("rule", [verify_tokens, verify_block])
@pytest.mark.parametrize("impossible", [0, 1, 2, 3])
def test_no_rows_beyond_an_impossible_draft_token_are_asked_for(
    impossible: int, rule: Rule
) -> None:
    asked = []

    def main(index: int) -> Distribution:
        asked.append(index)
        return one_hot(9 if index == impossible else index)

    def run(random: RandomDecisions) -> VerificationResult:
        return rule(main, [one_hot(token) for token in range(3)], [0, 1, 2], random)

    assert enumerate_outcomes(run) == {VerificationResult(impossible, 9): 1.0}
    assert asked == list(range(impossible + 1))
