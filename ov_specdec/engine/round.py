"""`decode`, a round of one sequence as a coroutine: propose, advance, verify, extend.

Plain decoding proposes nothing. Source: Leviathan et al., algorithm 1 (arXiv 2211.17192), where
`verify` takes drawn drafts as a block (arXiv 2403.10444), which accepts no fewer tokens.
"""

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from time import perf_counter

from ov_specdec.drafters.base import Proposal, Steps
from ov_specdec.engine.sequence import Sequence
from ov_specdec.planning.plan import NO_PLAN, Offer, Plan
from ov_specdec.results.stats import Round, RoundStats
from ov_specdec.runner.base import ForwardOutput
from ov_specdec.sampling.logits import Logits, TokenLogprobs, token_logprobs
from ov_specdec.sampling.samplers import process
from ov_specdec.sampling.verification import Draft, verify

NO_DRAFT = Draft([])

SCORED_PER_PASS = 64
"""Tokens of a prompt that one pass scores: with a vocabulary of 150,000, rows of 40 MB."""


def next_round(sequence: Sequence) -> Steps[Round]:
    """The next round of a sequence; if requested, the first begins with scores of the prompt."""
    num_top = sequence.request.options.prompt_logprobs
    if num_top is None or not sequence.is_first_round:
        return decode(sequence)
    return score_and_decode(sequence, num_top)


def score_and_decode(sequence: Sequence, num_top: int) -> Steps[Round]:
    """The scores of the prompt, and a round. Its record has the passes of both.

    All tokens of the prompt are fed, and none is cached.
    """
    begin, num_tokens = perf_counter(), len(sequence.tokens)
    scored, num_passes = yield from score_prompt(sequence, num_top)
    seconds = perf_counter() - begin
    round_ = yield from decode(sequence)
    stats = replace(
        round_.stats,
        verify_seconds=seconds + round_.stats.verify_seconds,
        seconds=seconds + round_.stats.seconds,
        pass_tokens=num_tokens,
        num_passes=num_passes + round_.stats.num_passes,
        cached_tokens=0,
    )
    return round_._replace(stats=stats, prompt_logprobs=scored)


def decode(sequence: Sequence) -> Steps[Round]:
    """One round, as a coroutine: it waits for passes, and asks for a draft length."""
    begin, grammar = perf_counter(), sequence.request.grammar
    forced = [] if grammar is None else sequence.force(grammar)
    proposal = yield from propose(sequence, forced)
    draft = proposal.draft.after(forced) if forced else proposal.draft
    drafted = perf_counter()
    sequence.num_drafted = len(proposal.draft.tokens)
    # Rejected draft tokens are rolled back when the cache is fed next.
    done = yield from sequence.cache.advance(sequence.tokens, draft.tokens)
    result = verify(sequence.request.sampler, sequence.tokens, done.logits, draft)
    new = sequence.extend([*draft.tokens[: result.num_accepted], result.next_token])
    num_from_draft = min(result.num_accepted, len(new))  # the text may end within the draft
    if sequence.cache.readers:
        sequence.cache.observe_accepted(num_from_draft)
    num_top = sequence.request.options.logprobs
    logprobs = [] if num_top is None else score(sequence, new, done.logits, num_top)
    # Forced tokens come first, and are no draft tokens of the drafter.
    num_forced = min(len(forced), result.num_accepted)
    num_accepted = result.num_accepted - num_forced
    stats = record(proposal, done, num_forced, num_accepted, new, begin, drafted)
    return Round(new, num_from_draft, draft.tokens, stats, logprobs, [])


def propose(sequence: Sequence, forced: list[int]) -> Steps[Proposal]:
    """The drafters' offers, the plan for them, and what the drafter of the taken one proposes.

    Nothing is proposed in the first round, so that the first token comes early, nor while a drafter
    lacks hidden states, which this round provides. Drafters take forced tokens for text, since none
    of them can be rejected.
    """
    grammar, drafters = sequence.request.grammar, sequence.request.drafters
    if not drafters:
        return Proposal(NO_DRAFT)
    lacks_states = sequence.cache.readers and sequence.num_pending > 1
    if sequence.is_first_round or lacks_states:
        return Proposal(NO_DRAFT, plan=Plan(0, "prefill"))
    tokens = [*sequence.tokens, *forced] if forced else sequence.tokens
    offers = tuple([offer for drafter in drafters for offer in drafter.offers(tokens)])
    if grammar is not None:
        fits = partial(grammar.num_fitting, tokens)
        offers = tuple(o for o in offers if o.token is None or fits([o.token]))
    if not offers:
        unmatched = Plan(0, "unmatched", Offer(drafters[0].sources[0]))
        return Proposal(NO_DRAFT, plan=unmatched)
    plan = (yield offers) or NO_PLAN
    if not plan.length:
        return Proposal(NO_DRAFT, plan=plan, offers=offers)
    drafter = next(each for each in drafters if plan.offer.source in each.sources)
    proposal = (yield from drafter.propose(tokens, plan)).until(sequence.request.sampler.ends)
    # A drawn draft stays whole, since its length may not depend on a dropped token: verification
    # rejects what does not fit.
    if grammar is not None and proposal.draft.probs is None:
        proposal = proposal.first(fits(proposal.draft.tokens))
    return proposal._replace(plan=plan, offers=offers)


def declined(plan: Plan, offers: Iterable[Offer], token: int) -> tuple[str, float, bool] | None:
    """A match that was not taken: source, confidence, and whether it would have been accepted.

    That is, whether its first token is the main model's own: as likely as verification accepts it.
    """
    for offer in offers:
        is_taken = plan.length and offer == plan.offer
        if offer.token is not None and offer.confidence is not None and not is_taken:
            return offer.source, offer.confidence, offer.token == token
    return None


def score_prompt(sequence: Sequence, num_top: int) -> Steps[tuple[list[TokenLogprobs], int]]:
    """Prefill the prompt and compute its log-probabilities; gives them and the number of passes.

    Rows of logits are large, so one pass scores few tokens. Cached ones whose rows are needed are
    recomputed. Each token is scored as if it were generated: with LongRoPE, those within the
    original context length are scored with the short factors.
    """
    tokens, cache = sequence.tokens, sequence.cache
    scored, num_passes = [TokenLogprobs(tokens[0], None)], 0
    while (start := len(scored)) < len(tokens):
        new = tokens[start : start + min(SCORED_PER_PASS, cache.room(start))]
        # The row of a token scores the next one.
        done = yield from cache.advance(tokens[: start + len(new) - 1], num_rows=len(new))
        scored += token_logprobs(done.logits, new, num_top)
        num_passes += done.num_passes
    return scored, num_passes


def score(sequence: Sequence, new: list[int], logits: Logits, num_top: int) -> list[TokenLogprobs]:
    """The log-probabilities of the newest tokens. logits: their rows."""
    tokens = sequence.tokens
    is_raw = sequence.request.options.logprobs_mode == "raw_logprobs"
    processors = () if is_raw else sequence.request.sampler.processors
    histories = (tokens[: len(tokens) - len(new) + i] for i in range(len(new)))
    rows = (process(processors, *each) for each in zip(histories, logits, strict=False))
    return token_logprobs(rows, new, num_top)


def record(
    proposal: Proposal,
    done: ForwardOutput,
    num_forced: int,
    num_accepted: int,
    new: list[int],
    begin: float,
    drafted: float,
) -> RoundStats:
    """The record of a round that ends now. begin, drafted: when it began, and had its draft."""
    plan, now = proposal.plan, perf_counter()
    # A text that ends within the forced tokens has no token to compare a match with.
    offers = proposal.offers if num_forced < len(new) else ()
    return RoundStats(
        num_drafted=len(proposal.draft.tokens),
        num_accepted=num_accepted,
        num_forced=num_forced,
        num_generated=len(new),
        draft_seconds=drafted - begin,
        verify_seconds=now - drafted - done.rollback_seconds,
        rollback_seconds=done.rollback_seconds,
        seconds=now - begin,
        pass_tokens=done.num_tokens,
        num_passes=done.num_passes,
        source=plan.offer.source,
        planned=plan.length,
        reason=plan.reason,
        confidences=proposal.confidences,
        match_confidence=plan.offer.confidence if plan.length else None,
        cached_tokens=done.num_cached,
        draft_pass_tokens=proposal.pass_tokens,
        expected_seconds=plan.seconds,
        expected_accepted=sum(plan.rate**n for n in range(1, len(proposal.draft.tokens) + 1)),
        declined=declined(plan, offers, new[num_forced]) if offers else None,
        num_sequences=done.num_sequences,
        draft_failed=proposal.has_failed,
    )
