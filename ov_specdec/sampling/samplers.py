"""Samplers choose tokens from logits: greedy, random, or by the noise of a seed.

One sampler serves plain decoding, drafting and verification, so all three have the same
distributions: every row goes through the same processors, with the history of plain decoding.
"""

from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from ov_specdec.sampling.distribution import Distribution, RandomSource
from ov_specdec.sampling.logits import Logits, most_likely
from ov_specdec.sampling.noise import Noise
from ov_specdec.sampling.processors import LogitsProcessor
from ov_specdec.sampling.warpers import LogitsWarper


class Chosen(NamedTuple):
    """A chosen token.

    drawn_from: its distribution, if it was drawn at random. confidence: how likely another model is
    to choose it too, from 0 to 1; None if unknown.
    """

    token: int
    drawn_from: Distribution | None = None
    confidence: float | None = None


class Sampler(Protocol):
    """Chooses tokens from logits."""

    @property
    def processors(self) -> tuple[LogitsProcessor, ...]:
        """Processors that every row goes through first."""

    @property
    def ends(self) -> Set[int]:
        """Tokens that end a text: nothing is sampled after them."""

    def sample(self, tokens: Sequence[int], row: Logits) -> Chosen:
        """Choose the token after `tokens`.

        row: logits [vocab]. Raises `LogitsError` for a row that gives no distribution.
        """


@dataclass(frozen=True)
class GreedySampler:
    """The most likely token, after the processors. Implements `Sampler`."""

    processors: tuple[LogitsProcessor, ...] = ()
    ends: Set[int] = frozenset()

    def sample(self, tokens: Sequence[int], row: Logits) -> Chosen:
        """The most likely token."""
        return Chosen(most_likely(process(self.processors, tokens, row)))


@dataclass(frozen=True)
class RandomSampler:
    """A token drawn from the warped distribution. Implements `Sampler`.

    random: takes the random decisions, those of verification among them.
    """

    processors: tuple[LogitsProcessor, ...]
    warper: LogitsWarper
    random: RandomSource
    ends: Set[int] = frozenset()

    def distribution(self, tokens: Sequence[int], row: Logits) -> Distribution:
        """The distribution of the token after `tokens`; raises as `sample` does."""
        return self.warper(process(self.processors, tokens, row))

    def sample(self, tokens: Sequence[int], row: Logits) -> Chosen:
        """Draw a token from the row's distribution."""
        distribution = self.distribution(tokens, row)
        return Chosen(self.random.draw(distribution), distribution)


@dataclass(frozen=True)
class SeededSampler:
    """The token that seeded noise chooses from the warped distribution. Implements `Sampler`.

    The choice is deterministic: as in greedy decoding, a draft token is accepted if it is the same
    token. Source: Daliri et al., algorithm 1 (arXiv 2408.07978).
    """

    processors: tuple[LogitsProcessor, ...]
    warper: LogitsWarper
    noise: Noise
    ends: Set[int] = frozenset()

    def sample(self, tokens: Sequence[int], row: Logits) -> Chosen:
        """The token that the noise chooses; it depends on seed, position and row alone."""
        warped = self.warper(process(self.processors, tokens, row))
        token, confidence = self.noise.draw(warped, len(tokens))
        return Chosen(token, confidence=confidence)


def process(processors: Sequence[LogitsProcessor], tokens: Sequence[int], row: Logits) -> Logits:
    """A row of logits [vocab] after all processors."""
    for processor in processors:
        row = processor(tokens, row)
    return row
