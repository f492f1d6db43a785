"""Opens and prepares the pipelines of the methods before the first measurement."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from ov_specdec.bench.methods import PLAIN, Method
from ov_specdec.bench.requests_at_once import answer_at_once
from ov_specdec.bench.turns import Way
from ov_specdec.drafters.factory import WITH_DRAFT, DrafterName
from ov_specdec.loading.profile import read_profile
from ov_specdec.pipeline import SpeculativePipeline
from ov_specdec.stats import Stopwatch

FOR_PAIRS = ("draft", "draft_device", "draft_properties", "pairing")
"""Arguments that only a pipeline with a draft model takes."""

Pipelines = Mapping[DrafterName, SpeculativePipeline]


def open_pipelines(
    methods: Iterable[Method], arguments: Mapping[str, Any], note: Callable[[str], None]
) -> Pipelines:
    """A pipeline for each drafter, those with a draft model first.

    Compiles models and static shapes, measures costs of passes that no file has, and checks batch
    invariance. note: called with the time of each.
    """
    drafters = dict.fromkeys(method.drafter for method in methods if method is not PLAIN)
    pipelines: dict[DrafterName, SpeculativePipeline] = {}
    for drafter in sorted(drafters, key=lambda name: name not in WITH_DRAFT) or [PLAIN.drafter]:
        watch = Stopwatch()
        first = next(iter(pipelines.values()), None)
        pipeline = SpeculativePipeline(**_arguments(drafter, arguments, first))
        loading = watch.lap()
        pipeline.prepare()
        preparing = watch.lap()
        pipeline.check_batch_invariant()
        sizes = sorted(pipeline.main.runner.static_shapes)
        note(
            f"drafter {drafter}: waited {loading:.1f} s for models, {preparing:.1f} s for the cost "
            f"curve and static shapes ({', '.join(map(str, sizes)) or 'none'}), "
            f"{watch.lap():.1f} s for the check of batch invariance"
        )
        pipelines[drafter] = pipeline
    return pipelines


def _arguments(
    drafter: DrafterName, arguments: Mapping[str, Any], first: SpeculativePipeline | None
) -> dict[str, Any]:
    """The arguments of a pipeline. first: an open one, whose profile all others take."""
    if drafter in WITH_DRAFT:
        return {**arguments, "drafter": drafter}
    alone = {name: value for name, value in arguments.items() if name not in FOR_PAIRS}
    if first is not None:
        alone["profile"] = "none"
        if first.profile is not None:
            alone["properties"] = read_profile(first.profile).main_properties
    return {**alone, "drafter": drafter}


def make_ways(
    methods: Iterable[Method], pipelines: Pipelines, options: Mapping[str, Any]
) -> dict[str, Way]:
    """For each method, a function that answers a load. options: of all generations.

    Plain decoding runs on the first pipeline, whatever its drafter.
    """
    first = next(iter(pipelines.values()))
    return {
        method.name: partial(
            answer_at_once,
            pipelines.get(method.drafter, first),
            {**options, **method.options},
        )
        for method in methods
    }


def check_prompts(pipelines: Pipelines, prompts: Sequence[str]) -> None:
    """Refuse prompts that the main model cannot read, with `OptionError`."""
    with next(iter(pipelines.values())).open_batch() as batch:  # never run
        for key, prompt in enumerate(prompts):
            batch.add(key, prompt)
