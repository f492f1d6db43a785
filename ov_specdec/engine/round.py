"""`decode`, a round of one sequence as a coroutine: draft, verify, accept.

Plain decoding drafts nothing. Source: Leviathan et al., algorithm 1 (arXiv 2211.17192).
"""

from ov_specdec.drafters.base import Proposal, Steps
from ov_specdec.engine.output import Round
from ov_specdec.engine.sequence import Sequence
from ov_specdec.logits import Logits
from ov_specdec.logprobs import TokenLogprobs, token_logprobs
from ov_specdec.planning.draft_length import Plan
from ov_specdec.sampling.samplers import process
from ov_specdec.sampling.verification import Draft, verify
from ov_specdec.stats import RoundStats, Stopwatch

SCORED_PER_PASS = 64
"""Tokens of a prompt that one pass scores: with a vocabulary of 150,000, rows of 40 MB."""


def decode(sequence: Sequence) -> Steps[Round]:
    """One round, as a coroutine: it waits for passes, and asks for a draft length."""
    watch = Stopwatch()
    tokens = sequence.tokens
    prompt_logprobs = yield from _score_prompt(sequence)
    num_tokens, scoring_seconds = len(tokens), watch.lap()
    proposal = yield from _propose(sequence)
    draft = proposal.draft
    draft_seconds = watch.lap()
    # Rejected draft tokens are rolled back when the cache is fed next.
    done = yield from sequence.cache.advance(tokens, draft.tokens)
    result = verify(sequence.sampler, tokens, done.logits, draft)
    verify_seconds = scoring_seconds + watch.lap() - done.rollback_seconds
    new = sequence.extend([*draft.tokens[: result.num_accepted], result.next_token])
    num_from_draft = min(result.num_accepted, len(new))
    if done.hidden_states is not None and num_from_draft:
        states = done.hidden_states[1 : num_from_draft + 1]  # after the row of the last token
        for reader in sequence.cache.readers:
            reader.observe(num_tokens, new[:num_from_draft], states)
    logprobs = _score(sequence, new, done.logits)
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
        declined=proposal.declined.outcome(new[0]) if proposal.declined else None,
        num_sequences=done.num_sequences,
        draft_failed=proposal.has_failed,
    )
    sequence.num_rounds += 1
    sequence.policy.update(stats)
    return Round(new, num_from_draft, draft.tokens, stats, logprobs, prompt_logprobs)


def _propose(sequence: Sequence) -> Steps[Proposal]:
    """The drafter's proposal; empty in the first round, so that the first token comes early.

    It is empty, too, while the drafter lacks hidden states, which this round provides.
    """
    if sequence.drafter is None:
        return Proposal(Draft([]))
    if sequence.num_rounds == 0 or sequence.lacks_hidden_states:
        return Proposal(Draft([]), plan=Plan(0, "prefill"))
    proposal = yield from sequence.drafter.propose(sequence.tokens)
    return proposal.until(sequence.eos_token_ids)


def _score_prompt(sequence: Sequence) -> Steps[list[TokenLogprobs]]:
    """Prefill the prompt and compute its log-probabilities, if they are requested.

    Rows of logits are large, so one pass scores few tokens. Cached positions with wanted rows are
    recomputed. Each token is scored as if it were generated: with LongRoPE, tokens up to the border
    are scored with the short factors.
    """
    if sequence.logprobs.prompt is None or sequence.num_rounds > 0:
        return []
    tokens, cache = sequence.tokens, sequence.cache
    scored = [TokenLogprobs(tokens[0], None)]
    while (start := len(scored)) < len(tokens):
        new = tokens[start : start + min(SCORED_PER_PASS, cache.room(start))]
        done = yield from cache.advance(tokens[: start + len(new) - 1], num_rows=len(new))
        scored += token_logprobs(done.logits, new, sequence.logprobs.prompt)
    return scored


def _score(sequence: Sequence, new: list[int], logits: Logits) -> list[TokenLogprobs]:
    """The log-probabilities of the newest tokens, if requested. logits: their rows."""
    wanted = sequence.logprobs
    if wanted.output is None:
        return []
    tokens = sequence.tokens
    histories = (tokens[: len(tokens) - len(new) + i] for i in range(len(new)))
    rows = (process(wanted.processors, *each) for each in zip(histories, logits, strict=False))
    return token_logprobs(rows, new, wanted.output)
