"""Make a sequence (caches, drafter, policy) from the options of a generation, text or speech."""

from collections.abc import Hashable

from ov_specdec.drafters.cascade import readers
from ov_specdec.drafters.factory import Beginning, DrafterFactory
from ov_specdec.drafters.references import References
from ov_specdec.engine.sequence import PLAIN, Sequence, WantedLogprobs
from ov_specdec.options import GenerationOptions
from ov_specdec.planning.draft_length import Policy
from ov_specdec.planning.schedule import LearnedStats, follows_costs, follows_itself, make_policy
from ov_specdec.runner.base import Runner
from ov_specdec.runner.cached_sequence import CachedSequence
from ov_specdec.runner.source import Source
from ov_specdec.sampling.from_options import Samplers


def make_sequence(
    main: Runner,
    drafters: DrafterFactory,
    learned: LearnedStats,
    options: GenerationOptions,
    samplers: Samplers,
    tokens: list[int],
    max_length: int,
    eos_token_ids: frozenset[int],
    namespace: Hashable,
    references: References,
    source: Source | None = None,
) -> Sequence:
    """A sequence with its prompt and empty caches.

    Its drafter indexes or translates the prompt, which takes time: do not call it within a step.
    namespace, references, source: see `Beginning`.
    """
    looks_back = not follows_itself(options, main)
    drafter = drafters.make(
        Beginning(options, samplers.draft, namespace, tokens, references, source, looks_back)
    )
    policy: Policy = PLAIN
    if drafter is not None:
        policy = make_policy(options, drafter.sources, learned, main)
    is_raw = options.logprobs_mode == "raw_logprobs"
    scored = () if is_raw else samplers.main.processors
    return Sequence(
        tokens,
        max_length,
        CachedSequence(main, source or namespace, readers(drafter)),
        samplers.main,
        drafter,
        policy,
        eos_token_ids,
        WantedLogprobs(options.logprobs, options.prompt_logprobs, scored),
        keeps_cache=options.cache_prompt,
        prepare=learned.costs.improve if drafter and follows_costs(options, main) else None,
    )
