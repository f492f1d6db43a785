"""The two loops over token ids: plain decoding, and speculative decoding.

Both write into a `Text`, which alone decides where the output ends, so that speculation cannot end
it elsewhere than plain decoding does.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from ov_specdec.drafters import Drafter
from ov_specdec.policy import Plan, Planner, Policy, Source
from ov_specdec.rules import Rule
from ov_specdec.session import Session, catch_up
from ov_specdec.stats import RoundStats, Stopwatch
from ov_specdec.verify import Draft

FinishReason = Literal["stop", "length"]

PREFILL = Draft([], why="prefill")
"""What the first round drafts, so that the first token comes as early as in plain decoding."""


@dataclass
class Text:
    """Prompt and output of one sequence, and when to end it.

    tokens: prompt and output. max_length: most tokens that it may grow to. eos_token_ids: tokens
    that end it. finish_reason: None while it may go on, "stop" after an end-of-sequence token,
    "length" once it is full.
    """

    tokens: list[int]
    max_length: int
    eos_token_ids: frozenset[int] = frozenset()
    finish_reason: FinishReason | None = None

    def extend(self, tokens: Sequence[int]) -> list[int]:
        """Append tokens up to where the text ends; returns those that were appended."""
        kept = []
        for token in tokens[: self.max_length - len(self.tokens)]:
            kept.append(token)
            if token in self.eos_token_ids:
                self.finish_reason = "stop"
                break
        self.tokens += kept
        if self.finish_reason is None and len(self.tokens) >= self.max_length:
            self.finish_reason = "length"
        return kept


@dataclass(frozen=True)
class Round:
    """What one pass of the main model added to the text.

    tokens: the new tokens. num_from_draft: how many of them, from the first, are candidates that
    stood; the one after those, if any, is the main model's own. candidates: all that were drafted.
    """

    tokens: list[int]
    num_from_draft: int
    candidates: list[int]
    stats: RoundStats


def decode(main: Session, rule: Rule, text: Text) -> Iterator[Round]:
    """Plain decoding, one token per pass, until `text` ends."""
    main.reset()
    while text.finish_reason is None:
        watch = Stopwatch()
        pass_tokens = len(text.tokens) - main.length
        logits = catch_up(main, text.tokens)
        verdict = rule.verify(text.tokens, logits, Draft([]))
        verify_seconds = watch.lap()
        new = text.extend([verdict.next_token])
        stats = RoundStats(0, 0, len(new), 0.0, verify_seconds, 0.0, watch.total(), pass_tokens)
        yield Round(new, 0, [], stats)


def speculate(
    main: Session, drafter: Drafter, policy: Policy, rule: Rule, text: Text
) -> Iterator[Round]:
    """Speculative decoding until `text` ends: the output of `decode`, in fewer passes.

    Source: Leviathan et al., algorithm 1 (arXiv 2211.17192).
    """
    main.reset()
    drafter.reset()
    while text.finish_reason is None:
        watch = Stopwatch()
        # The main model adds a token of its own, so one place of those left is not for the draft.
        room = text.max_length - len(text.tokens) - 1
        draft = drafter.propose(text.tokens, _planner(policy, room)) if main.length else PREFILL
        draft_seconds = watch.lap()

        filled = _fill(text.tokens + draft.tokens, main, policy)
        num_rows = len(filled) - len(text.tokens) + 1
        pass_tokens = len(filled) - main.length
        logits = catch_up(main, filled, num_rows)
        verdict = rule.verify(text.tokens, logits[: len(draft.tokens) + 1], draft)
        verify_seconds = watch.lap()

        new = text.extend([*draft.tokens[: verdict.num_accepted], verdict.next_token])
        # The newest token has not been fed yet; all that stands before it stays cached.
        main.rollback(len(text.tokens) - 1)
        drafter.rollback(len(text.tokens) - 1)
        rollback_seconds = watch.lap()

        stats = RoundStats(
            len(draft.tokens),
            verdict.num_accepted,
            len(new),
            draft_seconds,
            verify_seconds,
            rollback_seconds,
            watch.total(),
            pass_tokens,
            draft.source,
            draft.planned,
            draft.why,
            draft.confidences,
        )
        policy.update(stats)
        yield Round(new, min(verdict.num_accepted, len(new)), draft.tokens, stats)


def _planner(policy: Policy, room: int) -> Planner:
    """The policy's plans, cut to the places that the text has left."""

    def plan(source: Source, confidence: float | None = None) -> Plan:
        return policy.plan(source, confidence).within(room)

    return plan


def _fill(tokens: list[int], main: Session, policy: Policy) -> list[int]:
    """The tokens, filled up to the size of pass that the policy wants; rollback drops the rest."""
    pending = len(tokens) - main.length
    size = min(policy.pass_size(pending), main.max_length - main.length) if main.length else pending
    return tokens + tokens[-1:] * (size - pending)
