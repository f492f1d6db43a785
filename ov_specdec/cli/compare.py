"""`ov-specdec compare`: plain against speculative decoding, in one process."""

from collections.abc import Mapping, Sequence
from functools import partial
from statistics import median
from typing import Any

import click

from ov_specdec.cache.slot import common_prefix
from ov_specdec.cli.declare import command
from ov_specdec.cli.generate import as_dict, warnings_of, why_plain
from ov_specdec.cli.options import (
    LOGPROBS,
    MEASURED_TOKENS,
    make_pipeline,
    prepare,
    shared_options,
    verify_invariance,
)
from ov_specdec.cli.terminal import print_json, progress
from ov_specdec.measure.methods import interleave
from ov_specdec.options.generation import PLAIN, GenerationOptions
from ov_specdec.options.model import option
from ov_specdec.results.chunks import GenerationResult
from ov_specdec.text.prompt import Prompt

COMPARED = ("plain", "speculative")


@command(
    "[MAIN] [PROMPT]", partial(shared_options, without=LOGPROBS, max_new_tokens=MEASURED_TOKENS)
)
def compare(
    prompt: Prompt,
    pipeline: Mapping[str, Any],
    generation: GenerationOptions,
    as_json: bool,
    repeat: int = option(
        3, "Interleaved runs of each method after a warm-up; the report has medians.", ge=1
    ),
) -> None:
    """Continue PROMPT with plain and speculative decoding; show texts and speeds.

    Speeds include the reading of the prompt. What is known of a machine is measured and checked,
    and static shapes are compiled, before.
    """
    models = make_pipeline(pipeline)
    if models.drafter != "none":
        verify_invariance(models)
        prepare(models)
    speculative = generation.copy_with(cache_prompt=False)  # each run includes the prefill
    plain = speculative.copy_with(**PLAIN)
    methods = {
        "plain": partial(models.generate, options=plain),
        "speculative": partial(models.generate, options=speculative),
    }
    with progress("Comparing", len(COMPARED) * (repeat + 1)) as update:
        turns = interleave(methods, [prompt] * (repeat + 1), lambda _: update(advance=1))
        next(turns)  # a warm-up
        results = list(turns)
    report = {
        "sampled": models.complete_options(generation).samples,
        "batch_invariant": str(models.batch_invariant),
        **make_report(results),
    }
    if as_json:
        print_json(report)
    else:
        for line in (*describe(report), *warnings_of(results[0]["speculative"])):
            click.echo(line)
        if models.profile is not None:
            click.echo(f"profile      {models.profile}")


def make_report(turns: list[dict[str, GenerationResult]]) -> dict[str, Any]:
    """Both texts, whether they are equal, the speeds in each turn, and their median ratio.

    ratio: of tokens per second, since samples differ in length. None if nothing was drafted: it
    would only be noise.
    """
    plain, speculative = (turns[0][method] for method in COMPARED)
    speeds = [[turn[method].stats.tokens_per_second for turn in turns] for method in COMPARED]
    ratios = [own / other for other, own in zip(*speeds, strict=True)]
    if not any(turn["speculative"].stats.drafted for turn in turns):
        ratios = []
    report: dict[str, Any] = {
        "repeat": len(turns),
        "equal": plain.token_ids == speculative.token_ids,
        "ratio": median(ratios) if ratios else None,
        "ratios": ratios,
        "not_speculated": "" if ratios else why_plain(speculative.stats),
    }
    for method, own in zip(COMPARED, speeds, strict=True):
        report[method] = {"tokens_per_second": own, **as_dict(turns[0][method])}
    return report


def describe(report: Mapping[str, Any]) -> list[str]:
    """The report as lines of text."""
    lines = []
    if report["equal"]:
        lines += ["--- plain and speculative: the same text ---", written(report["plain"])]
    else:
        for method in COMPARED:
            lines += [f"--- {method} ---", written(report[method])]
    lines.append(f"--- medians of {report['repeat']} interleaved runs of each, after a warm-up ---")
    for method in COMPARED:
        run = report[method]
        stats = run["stats"]
        rate = f", {stats['acceptance_rate']:.0%} of drafts accepted" * (stats["drafted"] > 0)
        speed = spread(run["tokens_per_second"], 1)
        each = f"{stats['tokens_per_main_pass']:.1f} tokens per pass"
        lines.append(f"{method:<12} {speed} tokens/s{rate}, {each}")
    equal = "yes, token for token"
    if not report["equal"] and report["sampled"]:
        equal = "no: independent samples of the same distribution"
    elif not report["equal"]:
        same = common_prefix(*(report[method]["token_ids"] for method in COMPARED))
        equal = f"no, they differ after {same} tokens; batch invariant: {report['batch_invariant']}"
    ratio = f"not speculated: {report['not_speculated']}"
    if report["ratio"] is not None:
        gain = "; drafts gain nothing here" * (report["ratio"] < 1.0)
        ratio = f"{spread(report['ratios'], 2)}: speculative / plain, turn by turn{gain}"
    return [*lines, f"equal        {equal}", f"ratio        {ratio}"]


def written(run: Mapping[str, Any]) -> str:
    """Reasoning and text: an answer may be cut before it has any text."""
    return str(run.get("reasoning", "") + run["text"])


def spread(values: Sequence[float], digits: int) -> str:
    """The median with the range."""
    low, mid, high = (f"{pick(values):.{digits}f}" for pick in (min, median, max))
    return f"{mid} ({low} to {high})"
