"""The loop over token ids: speculative decoding, of which plain decoding is the case of no drafts.

It extends a `SequenceState`, which alone decides where the output ends, so that speculation cannot
end it elsewhere than plain decoding does.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from ov_specdec.cache.sequence import CachedSequence, Passes, alone
from ov_specdec.logits import Logits
from ov_specdec.logprobs import TokenLogprobs, token_logprobs
from ov_specdec.sampling.processors import LogitsProcessor
from ov_specdec.sampling.samplers import Sampler, process
from ov_specdec.speculation.draft_length import Ask, Plan, Policy
from ov_specdec.speculation.drafters import Drafter, Proposal, Steps
from ov_specdec.speculation.verification import Draft, verify
from ov_specdec.stats import FinishReason, RoundStats, Stopwatch

T = TypeVar("T")

SCORED_PER_PASS = 64
"""Tokens of a prompt that one pass scores: with a vocabulary of 150,000, rows of 40 MB."""


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
    drafted. logprobs: of each of the tokens, where they are wanted. prompt_logprobs: of each token
    of the prompt, in the first round.
    """

    tokens: list[int]
    num_from_draft: int
    candidates: list[int]
    stats: RoundStats
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    prompt_logprobs: list[TokenLogprobs] = field(default_factory=list)


@dataclass
class Speculation:
    """Speculative decoding of one sequence, round by round: the output of plain decoding, sooner.

    main: the main model's KV cache of the sequence. sampler: chooses the main model's tokens.
    drafter: where candidates come from; None for plain decoding. policy: how many of them.
    logprobs, prompt_logprobs: see `GenerationOptions`. scored: what the rows go through whose
    log-probabilities are given.
    Source: Leviathan et al., algorithm 1 (arXiv 2211.17192).
    """

    main: CachedSequence
    sampler: Sampler
    state: SequenceState
    drafter: Drafter | None
    policy: Policy
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    scored: tuple[LogitsProcessor, ...] = ()
    num_rounds: int = field(default=0, init=False)

    def round(self) -> Steps[Round]:
        """One round, as a coroutine.

        It waits for passes of the models, and asks how many tokens to draft: see `Steps`.
        """
        watch = Stopwatch()
        tokens = self.state.tokens
        prompt_logprobs = yield from self._score_prompt()
        num_tokens, scoring_seconds = len(tokens), watch.lap()
        proposal = yield from self._propose()
        draft = proposal.draft
        draft_seconds = watch.lap()
        # Rejected candidates are rolled back when the cache is fed next.
        done = yield from self.main.advance(tokens, draft.tokens)
        result = verify(self.sampler, tokens, done.logits, draft)
        verify_seconds = scoring_seconds + watch.lap() - done.rollback_seconds
        new = self.state.extend([*draft.tokens[: result.num_accepted], result.next_token])
        logprobs = self._score(new, done.logits)
        stats = RoundStats(
            num_drafted=len(draft.tokens),
            num_accepted=result.num_accepted,
            num_generated=len(new),
            draft_seconds=draft_seconds,
            verify_seconds=verify_seconds,
            rollback_seconds=done.rollback_seconds,
            seconds=watch.total(),
            pass_tokens=num_tokens if prompt_logprobs else done.num_tokens,
            source=proposal.source,
            planned=proposal.plan.length,
            reason=proposal.plan.reason,
            confidences=proposal.confidences,
            match_confidence=proposal.match_confidence,
            cached_tokens=0 if prompt_logprobs else done.num_cached,
            draft_pass_tokens=proposal.pass_tokens,
            expected_accepted=sum(proposal.plan.expected[: len(draft.tokens)]),
            declined=proposal.declined.judged(new[0]) if proposal.declined else None,
            num_sequences=done.num_sequences,
            draft_failed=proposal.has_failed,
        )
        self.num_rounds += 1
        self.policy.update(stats)
        num_from_draft = min(result.num_accepted, len(new))
        return Round(new, num_from_draft, draft.tokens, stats, logprobs, prompt_logprobs)

    def rounds(self) -> Iterator[Round]:
        """All rounds, of a sequence that has the models to itself."""
        while self.state.finish_reason is None:
            yield alone(self._planned(self.round()))

    def plan(self, ask: Ask) -> Plan:
        """How far a source may draft, by what this sequence alone tells."""
        return self.policy.plan(ask.source, ask.confidence).within(self.room)

    @property
    def room(self) -> int:
        """Places for candidates: the main model adds a token of its own, which needs one too.

        All candidates are fed, so that they have to be on the same side of its border.
        """
        num_tokens = len(self.state.tokens)
        return min(self.state.max_length - num_tokens, self.main.room(num_tokens)) - 1

    def _planned(self, steps: Steps[T]) -> Passes[T]:
        """The same coroutine with its questions answered."""
        plan = None
        try:
            while True:
                waits_for = steps.send(plan)
                plan = None
                if isinstance(waits_for, Ask):
                    plan = self.plan(waits_for)
                else:
                    yield waits_for
        except StopIteration as done:
            result: T = done.value
            return result

    def _score_prompt(self) -> Steps[list[TokenLogprobs]]:
        """Read the prompt, and say what the main model makes of it; nothing unless it is wanted.

        Rows of logits are large, so that few are asked of one pass. Places whose rows are wanted
        are read again where they are cached. Each token is scored as one that is generated would
        be: up to the border of the model by a sequence that does not cross it.
        """
        if self.prompt_logprobs is None or self.num_rounds > 0:
            return []
        tokens = self.state.tokens
        scored = [TokenLogprobs(tokens[0], None)]
        while (start := len(scored)) < len(tokens):
            new = tokens[start : start + min(SCORED_PER_PASS, self.main.room(start))]
            before = tokens[: start + len(new) - 1]
            done = yield from self.main.advance(before, num_rows=len(new))
            scored += token_logprobs(done.logits, new, self.prompt_logprobs)
        return scored

    def _score(self, new: Sequence[int], logits: Logits) -> list[TokenLogprobs]:
        """The log-probabilities of the newest tokens, where they are wanted. logits: their rows."""
        if self.logprobs is None:
            return []
        tokens = self.state.tokens
        histories = (tokens[: len(tokens) - len(new) + i] for i in range(len(new)))
        rows = (process(self.scored, *each) for each in zip(histories, logits, strict=False))
        return token_logprobs(rows, new, self.logprobs)

    def _propose(self) -> Steps[Proposal]:
        """What the drafter proposes: nothing at first, so that the first token comes early."""
        if self.drafter is None:
            return Proposal(Draft([]))
        if self.num_rounds == 0:
            return Proposal(Draft([]), plan=Plan(0, "prefill"))
        proposal = yield from self.drafter.propose(self.state.tokens)
        return proposal.until(self.state.eos_token_ids)
