"""The engine against `ov_specdec.reference`, and that against the main model's distribution."""

import itertools

import numpy as np
import pytest

from ov_specdec.drafters.model import DraftCache, ModelDrafter
from ov_specdec.planning.policies import ConstantLength
from ov_specdec.reference import speculative_decode
from ov_specdec.sampling.distribution import Distribution
from ov_specdec.sampling.samplers import Sampler
from tests.support.enumeration import enumerate_outcomes
from tests.support.fakes import ScriptedModel
from tests.support.running import rounds as rounds_of
from tests.support.running import sequence

GREEDY = Sampler()
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

    def greedy(self, tokens: list[int]) -> np.ndarray:
        """The same as probabilities at temperature 0."""
        return np.eye(VOCAB_SIZE)[self(tokens).argmax()]


@pytest.mark.parametrize("noise", [0.0, 0.3, 1.0, 10.0])
@pytest.mark.parametrize("length", [1, 2, 4, 7])
def test_engine_follows_the_papers_algorithm(length, noise):
    rates = []
    for seed in range(10):
        main, draft = ToyModel(seed, 0.0), ToyModel(seed, noise)
        drafter = ModelDrafter(DraftCache(ScriptedModel(draft)), GREEDY)
        text = sequence(ScriptedModel(main), [1, 2, 3], 60, drafter, ConstantLength(length))
        rounds = list(rounds_of(text))
        # The engine drafts nothing in its first round, the prefill.
        prompt, random = text.tokens[:4], np.random.default_rng(0)
        expected = speculative_decode(main.greedy, draft.greedy, prompt, length, 60, random)
        accepted = [round_.stats.num_accepted for round_ in rounds]
        assert ([*text.tokens[3:]], accepted) == (expected[0][3:], [0, *expected[1]])
        rates.append(sum(accepted) / sum(len(round_.draft_tokens) for round_ in rounds))
    # The comparison means something only if draft tokens were accepted, and some were rejected.
    assert noise == 10.0 or max(rates) > 0.3
    assert noise == 0.0 or min(rates) < 1.0


class Number:
    """A number from [0, 1) that is enumerated: which of two cases it is, by their probabilities."""

    def __init__(self, random):
        self._random = random

    def __lt__(self, probability):
        return self._random.accept(min(float(probability), 1.0))


class Generator:
    """Of `np.random.Generator`, what the reference takes; its decisions are enumerated."""

    def __init__(self, random):
        self._random = random

    def random(self):
        return Number(self._random)

    def choice(self, size, p):
        assert len(p) == size
        return self._random.draw(Distribution(None, p))


@pytest.mark.parametrize("length", [0, 1, 2, 3])
def test_reference_follows_the_main_models_distribution(length):
    tables = np.random.default_rng(3).dirichlet(np.ones(3), size=(2, 3))

    def main(tokens):
        return tables[0, tokens[-1]]

    def draft(tokens):
        return tables[1, tokens[-1]]

    def run(random):
        return tuple(speculative_decode(main, draft, [0], length, 4, Generator(random))[0])

    found = enumerate_outcomes(run)
    for output in itertools.product(range(3), repeat=3):
        tokens = (0, *output)
        wanted = np.prod([tables[0, a, b] for a, b in itertools.pairwise(tokens)])
        assert found[tokens] == pytest.approx(wanted, abs=1e-12)
