"""The two loops over token ids: plain decoding, and speculative decoding.

Both extend a `SequenceState`, which alone decides where the output ends, so that speculation cannot
end it elsewhere than plain decoding does.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ov_specdec.cache.session import Session, catch_up
from ov_specdec.sampling.samplers import Sampler
from ov_specdec.speculation.draft_length import Plan, Planner, Policy
from ov_specdec.speculation.drafters import Drafter, Proposal
from ov_specdec.speculation.verification import Draft, verify
from ov_specdec.stats import FinishReason, RoundStats, Stopwatch

PREFILL = Proposal(Draft([]), plan=Plan(0, "prefill"))
"""What the first round drafts, so that the first token comes as early as in plain decoding."""


@dataclass
class SequenceState:
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
        """Append tokens up to where the sequence ends; returns those that were appended."""
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
    """What one pass of the main model added to the sequence.

    tokens: the new tokens. num_from_draft: how many of them, from the first, are accepted
    candidates; the one after those, if any, is the main model's own. candidates: all that were
    drafted.
    """

    tokens: list[int]
    num_from_draft: int
    candidates: list[int]
    stats: RoundStats


def decode(main: Session, sampler: Sampler, state: SequenceState) -> Iterator[Round]:
    """Plain decoding, one token per pass, until the sequence ends."""
    main.reset()
    while state.finish_reason is None:
        watch = Stopwatch()
        pass_tokens = len(state.tokens) - main.length
        logits = catch_up(main, state.tokens)
        result = verify(sampler, state.tokens, logits, Draft([]))
        verify_seconds = watch.lap()
        new = state.extend([result.next_token])
        stats = RoundStats(0, 0, len(new), 0.0, verify_seconds, 0.0, watch.total(), pass_tokens)
        yield Round(new, 0, [], stats)


def speculate(
    main: Session, drafter: Drafter, policy: Policy, sampler: Sampler, state: SequenceState
) -> Iterator[Round]:
    """Speculative decoding until the sequence ends: the output of `decode`, in fewer passes.

    Source: Leviathan et al., algorithm 1 (arXiv 2211.17192).
    """
    main.reset()
    drafter.reset()
    while state.finish_reason is None:
        watch = Stopwatch()
        # The main model adds a token of its own, so one place of those left is not for the draft.
        room = state.max_length - len(state.tokens) - 1
        planner = _planner(policy, room)
        proposal = drafter.propose(state.tokens, planner) if main.length else PREFILL
        draft = proposal.draft
        draft_seconds = watch.lap()

        padded = _pad(state.tokens + draft.tokens, main, policy)
        num_rows = len(padded) - len(state.tokens) + 1
        pass_tokens = len(padded) - main.length
        logits = catch_up(main, padded, num_rows)
        result = verify(sampler, state.tokens, logits, draft)
        verify_seconds = watch.lap()

        new = state.extend([*draft.tokens[: result.num_accepted], result.next_token])
        # The newest token has not been fed yet; all that comes before it stays cached.
        main.rollback(len(state.tokens) - 1)
        drafter.rollback(len(state.tokens) - 1)
        rollback_seconds = watch.lap()

        stats = RoundStats(
            len(draft.tokens),
            result.num_accepted,
            len(new),
            draft_seconds,
            verify_seconds,
            rollback_seconds,
            watch.total(),
            pass_tokens,
            proposal.source,
            proposal.plan.length,
            proposal.plan.reason,
            proposal.confidences,
            proposal.match_confidence,
        )
        policy.update(stats)
        yield Round(new, min(result.num_accepted, len(new)), draft.tokens, stats)


def _planner(policy: Policy, room: int) -> Planner:
    """The policy's plans, cut to the places that the sequence has left."""

    def plan(source: str, confidence: float | None = None) -> Plan:
        return policy.plan(source, confidence).within(room)

    return plan


def _pad(tokens: list[int], main: Session, policy: Policy) -> list[int]:
    """The tokens, padded to the size of pass that the policy wants; rollback drops the rest."""
    pending = len(tokens) - main.length
    size = min(policy.pass_size(pending), main.max_length - main.length) if main.length else pending
    return tokens + tokens[-1:] * (size - pending)
