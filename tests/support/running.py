"""Runs drafters and sequences outside a pipeline."""

from collections.abc import Collection, Iterator
from collections.abc import Sequence as Ids
from dataclasses import replace
from typing import Any

from ov_specdec.drafters.base import Drafter, Proposal
from ov_specdec.drafters.factory import DrafterInput, draft_model
from ov_specdec.engine.engine import Engine
from ov_specdec.engine.loop import EngineLoop
from ov_specdec.engine.output import Output, Reader
from ov_specdec.engine.scheduler import StepLimits
from ov_specdec.engine.sequence import Request, Sequence
from ov_specdec.options.generation import GenerationOptions
from ov_specdec.planning.costs import NOMINAL, Costs
from ov_specdec.planning.plan import Plan
from ov_specdec.planning.policies import ConstantLength, Policy
from ov_specdec.results.stats import FinishReason, GenerationStats, Round
from ov_specdec.runner.base import HiddenStatesReader, Runner
from ov_specdec.runner.cached_sequence import CachedSequence, alone
from ov_specdec.sampling.samplers import Sampler
from ov_specdec.sampling.verification import Draft
from ov_specdec.text.detokenizer import IncrementalDetokenizer
from ov_specdec.text.pairing import TokenizerPair


class Rounds(Output):
    """Gives its reader the rounds."""

    def __init__(self, reader: Reader | None = None) -> None:
        text = IncrementalDetokenizer(lambda *_: b"", [])
        super().__init__(text, GenerationStats(0), reader=reader)

    def add(self, round_: Round, finish_reason: FinishReason | None) -> list[Any]:
        return [round_]


def sequence(
    main: Runner | CachedSequence,
    tokens: Ids[int],
    max_length: int,
    drafter: Drafter | tuple[Drafter, ...] | None = None,
    policy: Policy = ConstantLength(0),
    *,
    sampler: Sampler = Sampler(),
    eos: Collection[int] = (),
    output: Output | None = None,
    **more: Any,
) -> Sequence:
    """A sequence of a main model that is read at its end."""
    drafters = drafter if isinstance(drafter, tuple) else tuple(filter(None, [drafter]))
    cache = main
    if not isinstance(cache, CachedSequence):
        readers = [each for each in drafters if isinstance(each, HiddenStatesReader)]
        cache = CachedSequence(cache, readers=readers)
    if eos:
        sampler = replace(sampler, ends=frozenset(eos))
    request = Request(list(tokens), max_length, sampler, drafters, policy, **more)
    return Sequence(request, cache, output or Rounds())


def plain(main: Runner, tokens: Ids[int], max_length: int, **more: Any) -> Sequence:
    """What plain decoding makes of a prompt."""
    text = sequence(main, tokens, max_length, **more)
    list(rounds(text))
    return text


def propose(drafter: Drafter, tokens: Ids[int], length: int = 5) -> Proposal:
    """What a drafter proposes, up to `length` draft tokens, that has its models to itself."""
    if not drafter.offers(tokens):
        return Proposal(Draft([]))
    return alone(drafter.propose(tokens, Plan(length, "constant")))


def paired(
    draft: Runner,
    sampler: Sampler,
    pairing: TokenizerPair,
    tokens: Ids[int] = (),
    min_confidence: float = 0.0,
) -> Drafter:
    """The drafter of a draft model with another tokenizer."""
    options = GenerationOptions(assistant_confidence_threshold=min_confidence)
    given = DrafterInput(draft, draft, options, list(tokens), sampler, pairing=pairing)
    return draft_model(given)


def rounds(
    text: Sequence,
    *others: Sequence,
    limits: StepLimits = StepLimits(),
    costs: Costs = Costs(NOMINAL),
) -> Iterator[Round]:
    """The rounds of a sequence, which may share passes with others of the same models."""
    main = text.cache.runner
    caches = [cache for each in (text, *others) for cache in each.caches]
    draft = next((cache.runner for cache in caches if cache.runner is not main), None)
    loop = EngineLoop(Engine(main, draft, limits, costs))
    for other in others:
        loop.add(other)
    return loop.read(text)
