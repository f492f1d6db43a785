"""`ov-specdec compare`: plain against speculative decoding, in one process."""

from collections.abc import Mapping
from statistics import median
from typing import Annotated, Any

import click

from ov_specdec.baseline import common_prefix, plain_options
from ov_specdec.chunks import GenerationResult
from ov_specdec.cli.declare import own_options
from ov_specdec.cli.generate import as_dict
from ov_specdec.cli.models import make_pipeline, prepare
from ov_specdec.cli.options import shared_options
from ov_specdec.cli.summary import warnings_of, why_plain
from ov_specdec.cli.terminal import print_json, progress, with_errors
from ov_specdec.description import About
from ov_specdec.pipeline import SpeculativePipeline
from ov_specdec.text.prompt import Prompt

METHODS = ("plain", "speculative")


@click.command()
@with_errors
@own_options
@shared_options
def compare(
    prompt: Prompt,
    pipeline: Mapping[str, Any],
    generation: Mapping[str, Any],
    as_json: bool,
    repeat: Annotated[
        int,
        About("Interleaved runs of each method after a warm-up; the report has medians.", low=1),
    ] = 3,
) -> None:
    """Continue PROMPT with plain and with speculative decoding; show both texts and times.

    It first measures the cost of passes and compiles static shapes, as a longer process would.
    """
    models = make_pipeline(pipeline)
    if models.drafter != "none":
        prepare(models)
    results = run(models, prompt, generation, repeat)
    report = {
        "sampled": models.complete_options(**generation).samples,
        "batch_invariant": str(models.batch_invariant),
        **make_report(results),
    }
    if as_json:
        print_json(report)
    else:
        for line in (*describe(report), *warnings_of(results["speculative"][0])):
            click.echo(line)
        if models.profile is not None:
            click.echo(f"profile      {models.profile}")


def run(
    models: SpeculativePipeline, prompt: Prompt, generation: Mapping[str, Any], repeat: int
) -> dict[str, list[GenerationResult]]:
    """Run both methods interleaved, once as warm-up and `repeat` times; results by method."""
    generation = {**generation, "cache_prompt": False}  # each run includes the prefill
    options = {"plain": plain_options(generation), "speculative": generation}
    results: dict[str, list[GenerationResult]] = {method: [] for method in METHODS}
    with progress("Comparing", len(METHODS) * (repeat + 1)) as update:
        for turn in range(repeat + 1):
            for method in METHODS:
                result = models.generate(prompt, **options[method])
                if turn > 0:
                    results[method].append(result)
                update(advance=1)
    return results


def make_report(results: Mapping[str, list[GenerationResult]]) -> dict[str, Any]:
    """Both texts, whether they are equal, median seconds with their range, and the ratio.

    repeat: runs of each. ratio: the median ratio of times of adjacent runs; None if nothing was
    drafted, since it would only be noise.
    """
    plain, speculative = (results[method][0] for method in METHODS)
    report: dict[str, Any] = {
        "repeat": len(results["plain"]),
        "equal": plain.token_ids == speculative.token_ids,
    }
    times = {method: [run.stats.seconds for run in results[method]] for method in METHODS}
    for method in METHODS:
        report[method] = {
            "seconds": median(times[method]),
            "seconds_min": min(times[method]),
            "seconds_max": max(times[method]),
            **as_dict(results[method][0]),
        }
    ratios = [slow / fast for slow, fast in zip(*times.values(), strict=True)]
    is_speculated = any(run.stats.drafted for run in results["speculative"])
    report["ratio"] = median(ratios) if is_speculated else None
    report["ratios"] = ratios if is_speculated else []
    report["not_speculated"] = "" if is_speculated else why_plain(speculative.stats)
    return report


def describe(report: Mapping[str, Any]) -> list[str]:
    """The report as lines of text."""
    lines = []
    if report["equal"]:
        lines += ["--- plain and speculative: the same text ---", report["plain"]["text"]]
    else:
        for method in METHODS:
            lines += [f"--- {method} ---", report[method]["text"]]
    lines.append(f"--- medians of {report['repeat']} interleaved runs of each, after a warm-up ---")
    for method in METHODS:
        run_ = report[method]
        stats = run_["stats"]
        accepted = (
            f", {stats['acceptance_rate']:.0%} of drafts accepted" if stats["drafted"] else ""
        )
        lines.append(
            f"{method:<12} {run_['generated_tokens']} tokens in {run_['seconds']:.3f} s "
            f"({run_['seconds_min']:.3f} to {run_['seconds_max']:.3f})"
            f"{accepted}, {stats['tokens_per_main_pass']:.1f} tokens per pass"
        )
    if report["equal"]:
        lines.append("equal        yes, token for token")
    elif report["sampled"]:
        lines.append("equal        no: independent samples of the same distribution")
    else:
        a, b = (report[method]["token_ids"] for method in METHODS)
        lines.append(
            f"equal        no, they differ after {common_prefix(a, b)} tokens; batch invariant: "
            f"{report['batch_invariant']}"
        )
    return [*lines, f"ratio        {describe_ratio(report)}"]


def describe_ratio(report: Mapping[str, Any]) -> str:
    """The ratio with its spread, or why there is none."""
    if report["ratio"] is None:
        return f"not speculated: {report['not_speculated']}"
    low, high = min(report["ratios"]), max(report["ratios"])
    spread = f"{report['ratio']:.2f} ({low:.2f} to {high:.2f})"
    verdict = "; drafts gain nothing here" if report["ratio"] < 1.0 else ""
    return f"{spread}: plain time / speculative time, run by run{verdict}"
