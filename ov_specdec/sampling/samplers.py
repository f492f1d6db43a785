"""How tokens are chosen from logits: the most likely one, or drawn from a distribution.

One sampler serves plain decoding, drafting and verification, so that all three see the same
distributions: every row goes through the same processors, with the history that it would have had
if its tokens had been decoded one by one.
"""

from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from typing import Protocol

from ov_specdec.logits import Logits, most_likely
from ov_specdec.sampling.distribution import Distribution, certain
from ov_specdec.sampling.processors import LogitsProcessor
from ov_specdec.sampling.random_source import CertainSource, RandomSource
from ov_specdec.sampling.warpers import LogitsWarper


class Sampler(Protocol):
    """A way to choose tokens."""

    @property
    def random(self) -> RandomSource:
        """What takes the random decisions, those of verification among them."""
        ...

    @property
    def processors(self) -> tuple[LogitsProcessor, ...]:
        """What every row goes through first."""
        ...

    @property
    def ends(self) -> Set[int]:
        """Tokens that end a text: what follows them is never asked."""
        ...

    def distribution(self, tokens: Sequence[int], row: Logits) -> Distribution:
        """What the token after `tokens` is drawn from. row: logits [vocab].

        Raises `LogitsError` for a row that gives no distribution.
        """
        ...

    def sample(self, tokens: Sequence[int], row: Logits) -> tuple[int, Distribution | None]:
        """Choose a token to follow `tokens`, with the distribution that it was drawn from, if any.

        row: logits [vocab]. Raises `LogitsError` for a row that gives no distribution.
        """
        ...


@dataclass(frozen=True)
class GreedySampler:
    """The most likely token, after the processors. Implements `Sampler`."""

    processors: tuple[LogitsProcessor, ...] = ()
    ends: Set[int] = frozenset()
    random: RandomSource = field(default_factory=CertainSource)

    def distribution(self, tokens: Sequence[int], row: Logits) -> Distribution:
        """All of the probability on the most likely token."""
        return certain(self.sample(tokens, row)[0])

    def sample(self, tokens: Sequence[int], row: Logits) -> tuple[int, None]:
        """The most likely token."""
        return most_likely(process(self.processors, tokens, row)), None


@dataclass(frozen=True)
class RandomSampler:
    """A token drawn from the warped distribution. Implements `Sampler`."""

    processors: tuple[LogitsProcessor, ...]
    warper: LogitsWarper
    random: RandomSource
    ends: Set[int] = frozenset()

    def distribution(self, tokens: Sequence[int], row: Logits) -> Distribution:
        """The row's distribution, after processors and warper."""
        return self.warper(process(self.processors, tokens, row))

    def sample(self, tokens: Sequence[int], row: Logits) -> tuple[int, Distribution]:
        """Draw a token from the row's distribution."""
        distribution = self.distribution(tokens, row)
        return self.random.draw(distribution), distribution


def process(processors: Sequence[LogitsProcessor], tokens: Sequence[int], row: Logits) -> Logits:
    """A row of logits [vocab] after all processors."""
    for processor in processors:
        row = processor(tokens, row)
    return row
