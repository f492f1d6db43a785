"""`Sampler` chooses tokens from logits: greedy, random, or by the noise of a seed.

One sampler serves plain decoding, drafting and verification, so all three have the same
distributions: every row goes through the same processors, with the history of plain decoding.
"""

from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from typing import NamedTuple

from ov_specdec.sampling.distribution import Distribution, RandomDecisions
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
            return Chosen(most_likely(process(self.processors, tokens, row)))
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
