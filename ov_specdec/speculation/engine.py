"""The two loops over token ids: plain decoding, and speculative decoding.

Both extend a `SequenceState`, which alone decides where the output ends, so that speculation cannot
end it elsewhere than plain decoding does.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from threading import Event

from ov_specdec.cache.sequence import CachedSequence
from ov_specdec.sampling.samplers import Sampler
from ov_specdec.speculation.draft_length import Plan, Policy, limited
from ov_specdec.speculation.drafters import Drafter, Proposal
from ov_specdec.speculation.verification import Draft, verify
from ov_specdec.stats import FinishReason, RoundStats, Stopwatch

PLAIN = Proposal(Draft([]))
PREFILL = Proposal(Draft([]), plan=Plan(0, "prefill"))
"""What the first round drafts, so that the first token comes as early as in plain decoding."""


@dataclass
class SequenceState:
    """Prompt and output of one sequence, and when to end it.

    tokens: prompt and output. max_length: most tokens that it may grow to. eos_token_ids: tokens
    that end it. finish_reason: None while it may go on, "stop" after an end-of-sequence token,
    "length" once it is full. cancelled: set by whoever wants it to end within one pass.
    """

    tokens: list[int]
    max_length: int
    eos_token_ids: frozenset[int] = frozenset()
    finish_reason: FinishReason | None = None
    cancelled: Event = field(default_factory=Event, compare=False)

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


def decode(main: CachedSequence, sampler: Sampler, state: SequenceState) -> Iterator[Round]:
    """Plain decoding, one token per pass, until the sequence ends."""
    main.begin(state.tokens, state.cancelled)
    while state.finish_reason is None:
        yield _run(main, sampler, state, PLAIN, Stopwatch())


def speculate(
    main: CachedSequence, drafter: Drafter, policy: Policy, sampler: Sampler, state: SequenceState
) -> Iterator[Round]:
    """Speculative decoding until the sequence ends: the output of `decode`, in fewer passes.

    Source: Leviathan et al., algorithm 1 (arXiv 2211.17192).
    """
    main.begin(state.tokens, state.cancelled)
    drafter.begin(state.tokens, state.cancelled)
    prefill = _run(main, sampler, state, PREFILL, Stopwatch())
    policy.update(prefill.stats)
    yield prefill
    while state.finish_reason is None:
        watch = Stopwatch()
        # The main model adds a token of its own, so one place of those left is not for the draft.
        room = state.max_length - len(state.tokens) - 1
        proposal = drafter.propose(state.tokens, limited(policy, room))
        size = policy.pass_size(1 + len(proposal.draft.tokens))
        round_ = _run(main, sampler, state, proposal, watch, size)
        policy.update(round_.stats)
        yield round_


def _run(
    main: CachedSequence,
    sampler: Sampler,
    state: SequenceState,
    proposal: Proposal,
    watch: Stopwatch,
    pass_size: int = 0,
) -> Round:
    """One pass of the main model over what its cache lacks, padded to a size: the end of a round.

    Rejected candidates and padding are rolled back when the cache is fed next.
    """
    draft = proposal.draft
    draft_seconds = watch.lap()
    size = min(pass_size, main.max_length - len(state.tokens) + 1)
    padding = state.tokens[-1:] * (size - len(draft.tokens) - 1)
    done = main.advance(state.tokens, draft.tokens + padding)
    result = verify(sampler, state.tokens, done.logits, draft)
    verify_seconds = watch.lap() - done.rollback_seconds
    new = state.extend([*draft.tokens[: result.num_accepted], result.next_token])
    stats = RoundStats(
        num_drafted=len(draft.tokens),
        num_accepted=result.num_accepted,
        num_generated=len(new),
        draft_seconds=draft_seconds,
        verify_seconds=verify_seconds,
        rollback_seconds=done.rollback_seconds,
        seconds=watch.total(),
        pass_tokens=done.num_tokens,
        source=proposal.source,
        planned=proposal.plan.length,
        reason=proposal.plan.reason,
        confidences=proposal.confidences,
        match_confidence=proposal.match_confidence,
        cached_tokens=done.num_cached,
        draft_pass_tokens=proposal.pass_tokens,
        expected_accepted=sum(proposal.plan.expected[: len(draft.tokens)]),
        declined=proposal.declined.judged(new[0]) if proposal.declined else None,
    )
    return Round(new, min(result.num_accepted, len(new)), draft.tokens, stats)
