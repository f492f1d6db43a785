"""From the options of a generation to its speculation: KV caches, drafter, draft lengths."""

from collections.abc import Hashable, Iterable, Sequence

from ov_specdec.cache.sequence import CachedSequence
from ov_specdec.cache.session import Runner
from ov_specdec.cache.source import Source
from ov_specdec.options import GenerationOptions
from ov_specdec.sampling.from_options import Samplers
from ov_specdec.speculation.draft_length import ConstantLength, Policy
from ov_specdec.speculation.drafters import Drafter
from ov_specdec.speculation.drafters.factory import DrafterFactory
from ov_specdec.speculation.engine import SequenceState, Speculation
from ov_specdec.speculation.schedule import (
    LearnedStats,
    follows_costs,
    follows_itself,
    make_policy,
)


def make_drafter(
    main: Runner,
    drafters: DrafterFactory,
    options: GenerationOptions,
    samplers: Samplers,
    state: SequenceState,
    namespace: Hashable,
    references: Iterable[Sequence[int]] = (),
    source: Source | None = None,
) -> Drafter | None:
    """The drafter of one sequence, which holds its prompt: made before its request is submitted.

    namespace, references, source: see `DrafterFactory.make`.
    """
    looks_back = not follows_itself(options, main)
    return drafters.make(
        options, samplers.draft, namespace, state.tokens, references, source, looks_back=looks_back
    )


def time_passes(
    main: Runner, drafter: Drafter | None, learned: LearnedStats, options: GenerationOptions
) -> None:
    """Have passes timed, where draft lengths follow what they cost and that is not known."""
    if drafter is not None and follows_costs(options, main):
        learned.costs.prepare()


def begin(
    main: Runner,
    drafter: Drafter | None,
    learned: LearnedStats,
    options: GenerationOptions,
    samplers: Samplers,
    state: SequenceState,
    namespace: Hashable,
) -> Speculation:
    """The speculation of one sequence. namespace: of the main model's KV cache."""
    policy: Policy = ConstantLength(0)
    if drafter is not None:
        policy = make_policy(options, drafter.sources, learned, main)
    cache = CachedSequence(main, namespace)
    is_raw = options.logprobs_mode == "raw_logprobs"
    scored = () if is_raw else samplers.main.processors
    wanted = options.logprobs, options.prompt_logprobs, scored
    return Speculation(cache, samplers.main, state, drafter, policy, *wanted)
