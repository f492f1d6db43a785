"""The engine against a cache-free oracle of the papers' algorithm, in plain numpy."""

import numpy as np
import pytest

from ov_specdec.drafters import ModelDrafter
from ov_specdec.planning.draft_length import ConstantLength
from ov_specdec.runner.cached_sequence import CachedSequence
from ov_specdec.sampling.samplers import GreedySampler
from tests.fakes import ScriptedModel
from tests.running import rounds as rounds_of
from tests.running import sequence

GREEDY = GreedySampler()
VOCAB_SIZE = 12


class ToyModel:
    """Logits from the last three tokens through fixed random tables; a draft adds noise to them."""

    def __init__(self, seed: int, noise: float) -> None:
        generator = np.random.default_rng(seed)
        self._tables = generator.normal(size=(3, VOCAB_SIZE, VOCAB_SIZE))
        self._tables += noise * np.random.default_rng(seed + 1).normal(size=self._tables.shape)

    def __call__(self, tokens: list[int]) -> np.ndarray:
        """The logits of the token after `tokens`, [vocab]."""
        last = tokens[-3:]
        return sum(self._tables[i, token] for i, token in enumerate(reversed(last)))


def oracle(main: ToyModel, draft: ToyModel, prompt: list[int], gamma: int, total: int):
    """Leviathan et al., algorithm 1, at temperature 0: every distribution from the whole text.

    Returns the text and, round by round, how many guesses were accepted.
    """
    text, accepted = list(prompt), []
    text.append(int(main(text).argmax()))
    while len(text) < total:
        guesses: list[int] = []
        for _ in range(min(gamma, total - len(text) - 1)):
            guesses.append(int(draft(text + guesses).argmax()))
        choices = [int(main(text + guesses[:i]).argmax()) for i in range(len(guesses) + 1)]
        agree = [guess == choice for guess, choice in zip(guesses, choices, strict=False)]
        n = agree.index(False) if False in agree else len(guesses)
        text += [*guesses[:n], choices[n]]
        accepted.append(n)
    return text, accepted


@pytest.mark.parametrize("noise", [0.0, 0.3, 1.0, 10.0])
@pytest.mark.parametrize("gamma", [1, 2, 4, 7])
def test_engine_follows_the_papers_algorithm(gamma, noise):
    rates = []
    for seed in range(10):
        main, draft = ToyModel(seed, 0.0), ToyModel(seed, noise)
        expected, accepted = oracle(main, draft, [1, 2, 3], gamma, 60)
        drafter = ModelDrafter(CachedSequence(ScriptedModel(draft)), GREEDY)
        text = sequence(ScriptedModel(main), [1, 2, 3], 60, drafter, ConstantLength(gamma))
        rounds = list(rounds_of(text))
        assert text.tokens == expected
        assert [round_.stats.num_accepted for round_ in rounds[1:]] == accepted
        rates.append(sum(accepted) / sum(len(round_.draft_tokens) for round_ in rounds))
    # The comparison means something only if draft tokens were accepted, and some were rejected.
    assert noise == 10.0 or max(rates) > 0.3
    assert noise == 0.0 or min(rates) < 1.0
