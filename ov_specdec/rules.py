"""How tokens are chosen from logits, greedily or by sampling, and which candidates then stand.

One rule serves plain decoding, drafting and verification, so that all three see the same
distributions: every row goes through the same processors, with the history that it would have had
if its tokens had been decoded one by one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ov_specdec.dice import Dice
from ov_specdec.distribution import Distribution, certain
from ov_specdec.processors import Processor
from ov_specdec.session import Logits
from ov_specdec.verify import Draft, Verdict, greedy, verify_greedy, verify_sampled
from ov_specdec.warp import Warp, check_row


class Rule(Protocol):
    """A way to choose tokens."""

    def draft(self, tokens: Sequence[int], row: Logits) -> tuple[int, Distribution | None]:
        """Choose a token to follow `tokens`, with the distribution that it was drawn from, if any.

        row: logits [vocab].
        """
        ...

    def verify(self, tokens: Sequence[int], logits: Logits, draft: Draft) -> Verdict:
        """Which candidates of the draft stand after `tokens`, and what follows them.

        logits: [len(draft.tokens) + 1, vocab], from the main model. With an empty draft, this is
        how plain decoding chooses its next token.
        """
        ...


@dataclass(frozen=True)
class GreedyRule:
    """The most likely token, after the processors."""

    processors: tuple[Processor, ...] = ()

    def draft(self, tokens: Sequence[int], row: Logits) -> tuple[int, None]:
        """The most likely token; no chance is involved."""
        processed = process(self.processors, tokens, row)
        if self.processors:
            check_row(processed)
        return greedy(processed), None

    def verify(self, tokens: Sequence[int], logits: Logits, draft: Draft) -> Verdict:
        """Accept candidates for as long as each is the most likely token in its place."""
        if not self.processors:
            return verify_greedy(logits, draft.tokens)
        history = list(tokens)
        for index, candidate in enumerate(draft.tokens):
            choice, _ = self.draft(history, logits[index])
            if choice != candidate:
                return Verdict(index, choice)
            history.append(candidate)
        return Verdict(len(draft.tokens), self.draft(history, logits[-1])[0])


@dataclass(frozen=True)
class SamplingRule:
    """A token drawn from the warped distribution; verification keeps that distribution exactly."""

    processors: tuple[Processor, ...]
    warp: Warp
    dice: Dice

    def draft(self, tokens: Sequence[int], row: Logits) -> tuple[int, Distribution]:
        """Draw a token from the row's distribution."""
        distribution = self.distribution(tokens, row)
        return self.dice.draw(distribution), distribution

    def verify(self, tokens: Sequence[int], logits: Logits, draft: Draft) -> Verdict:
        """Exact speculative sampling; rows after a rejection are not even looked at."""
        text = [*tokens, *draft.tokens]
        draft_probs = draft.probs
        if draft_probs is None:
            draft_probs = [certain(token) for token in draft.tokens]
        return verify_sampled(
            lambda i: self.distribution(text[: len(tokens) + i], logits[i]),
            draft_probs,
            draft.tokens,
            self.dice,
        )

    def distribution(self, tokens: Sequence[int], row: Logits) -> Distribution:
        """What the token after `tokens` is drawn from."""
        return self.warp(process(self.processors, tokens, row))


def process(processors: Sequence[Processor], tokens: Sequence[int], row: Logits) -> Logits:
    """A row of logits [vocab] after all processors."""
    for processor in processors:
        row = processor(tokens, row)
    return row
