"""Runs drafters and sequences outside a pipeline."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from ov_specdec.cache.sequence import PREFILL_CHUNK, CachedSequence, run
from ov_specdec.cache.session import Runner
from ov_specdec.costs import NOMINAL, Costs, FixedCurve
from ov_specdec.sampling.from_options import Samplers
from ov_specdec.sampling.random_source import NumpyRandomSource
from ov_specdec.sampling.samplers import GreedySampler, RandomSampler
from ov_specdec.scheduling import Limits, Request, Scheduler, Turns
from ov_specdec.speculation.draft_length import Ask, ConstantLength, Plan
from ov_specdec.speculation.drafters import Drafter, Proposal
from ov_specdec.speculation.engine import Round, SequenceState, Speculation


def plain(main: Runner, state: SequenceState, sampler=None) -> list[Round]:
    """The rounds of plain decoding, greedy unless a sampler is given."""
    sampler = sampler or GreedySampler()
    speculation = Speculation(CachedSequence(main), sampler, state, None, ConstantLength(0))
    return list(speculation.rounds())


def repeatable(samplers: Samplers, seed: int) -> Samplers:
    """Samplers that draw as without a seed, and the same in each run."""
    random = NumpyRandomSource(np.random.default_rng(seed))
    both = (
        replace(sampler, random=random) if isinstance(sampler, RandomSampler) else sampler
        for sampler in (samplers.main, samplers.draft)
    )
    return Samplers(*both)


def propose(drafter: Drafter, tokens: Sequence[int], plan: Callable[[Ask], Plan]) -> Proposal:
    """What a drafter proposes that has its models to itself. plan: answers its questions."""
    steps, answer = drafter.propose(tokens), None
    try:
        while True:
            waits_for, answer = steps.send(answer), None
            if isinstance(waits_for, Ask):
                answer = plan(waits_for)
            else:
                run([waits_for], [waits_for.span(PREFILL_CHUNK)])
    except StopIteration as done:
        return done.value


def request_of(speculation: Speculation) -> Request[Round]:
    """A request for the rounds of a sequence."""
    num_tokens = len(speculation.state.tokens)
    return Request(lambda: speculation, lambda round_: [round_], num_tokens, max_unread=None)


def scheduled(
    speculation: Speculation,
    *others: Speculation,
    limits: Limits = Limits(),  # noqa: B008
    costs: Costs = FixedCurve(NOMINAL),  # noqa: B008
) -> Iterator[Round]:
    """The rounds of a sequence that a scheduler runs beside others of the same models."""
    caches = [cache for each in (speculation, *others) for cache in caches_of(each)]
    drafts = [cache.runner for cache in caches if cache.runner is not speculation.main.runner]
    draft = drafts[0] if drafts else None
    turns = Turns(Scheduler(speculation.main.runner, draft, limits, costs))
    for other in others:
        turns.submit(request_of(other))
    return turns.read(request_of(speculation))


def caches_of(speculation: Speculation) -> tuple[CachedSequence, ...]:
    """The KV caches of a sequence, the main model's first."""
    drafter = speculation.drafter
    return (speculation.main, *(drafter.caches if drafter else ()))
