"""`ov-specdec generate`: one prompt, one continuation, and its statistics as text."""

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import groupby, pairwise
from statistics import median
from typing import Any

import click

from ov_specdec.cli.app import end_interrupted
from ov_specdec.cli.declare import command
from ov_specdec.cli.options import make_pipeline, shared_options
from ov_specdec.cli.terminal import Transcript, print_json
from ov_specdec.errors import OptionError
from ov_specdec.options.generation import GenerationOptions
from ov_specdec.options.model import option
from ov_specdec.pipeline import SpeculativePipeline
from ov_specdec.planning.costs import CostCurve
from ov_specdec.results.chunks import GenerationResult
from ov_specdec.results.stats import GenerationStats
from ov_specdec.sampling.logits import finite
from ov_specdec.text.detokenizer import as_text
from ov_specdec.text.prompt import Prompt
from ov_specdec.text.tokenizer import Tokenizer

MAX_CHANGES = 8
"""Maximum changes of the draft length to show."""

IDLE_REASONS = {
    "loses": "would be slower: a draft token costs more than it saves",
    "unmatched": "nothing in the text repeats",
    "full": "no room for draft tokens",
}
"""Explanations of rounds without drafts, by their reason in the statistics."""

MIN_PASSES = 8
"""Minimum number of passes for an estimate of the speedup."""

UNSTEADY = 1.3
"""A tenth of the passes took more than so many times the median: the pace is not known."""


@command("[MAIN] [PROMPT]", shared_options)
def generate(
    prompt: Prompt,
    pipeline: Mapping[str, Any],
    generation: GenerationOptions,
    as_json: bool,
    verbose: bool = option(False, "Show all statistics.", group="Output"),
) -> None:
    """Continue PROMPT: text on stdout as it comes, then a line of statistics on stderr."""
    for name in ("logprobs", "prompt_logprobs"):
        if (value := getattr(generation, name)) is not None and not as_json:
            problem = f"{{{name}}} is shown with --json only"
            raise OptionError(f"{problem}: give that too", **{name: value})
    models = make_pipeline(pipeline)
    if as_json:
        result = models.generate(prompt, generation)
        print_json({**as_dict(result), **scores(result, models.tokenizer)})
        return
    shown = Transcript()
    try:
        with models.stream(prompt, generation) as stream:
            for chunk in stream:
                shown.show(chunk)
    except KeyboardInterrupt:
        click.echo()
        end_interrupted(f"interrupted after {len(shown.output.token_ids)} tokens")
    click.echo()
    result = shown.output.result
    rest = details(result, models) if verbose else ()
    for line in (figures(result, models), *warnings_of(result), *rest):
        click.echo(line, err=True)


def as_dict(result: GenerationResult) -> dict[str, Any]:
    """A result for JSON, without log-probabilities. reasoning, tool_calls: only if there are."""
    calls = [{"name": call.name, "arguments": call.arguments} for call in result.tool_calls]
    parts = {"reasoning": result.reasoning, "tool_calls": calls}
    return {
        "text": result.text,
        **{name: value for name, value in parts.items() if value},
        "token_ids": result.token_ids,
        "prompt_tokens": result.stats.prompt_tokens,
        "cached_tokens": result.stats.cached_tokens,
        "generated_tokens": len(result.token_ids),
        "finish_reason": result.finish_reason,
        "stats": result.stats.as_dict(),
    }


def scores(result: GenerationResult, tokenizer: Tokenizer) -> dict[str, Any]:
    """The requested log-probabilities of a result, for JSON."""

    def scored(token_id: int, logprob: float | None) -> dict[str, Any]:
        text = as_text(tokenizer.piece(token_id))
        known = None if logprob is None else finite(logprob)  # JSON has no infinity
        return {"token_id": token_id, "text": text, "logprob": known}

    return {
        name: [
            {**scored(each.token_id, each.logprob), "top": [scored(*top) for top in each.top]}
            for each in tokens
        ]
        for name in ("logprobs", "prompt_logprobs")
        if (tokens := getattr(result, name))
    }


def why_plain(stats: GenerationStats) -> str:
    """The most frequent reason for no drafts; empty if there were drafts."""
    if stats.drafted:
        return ""
    rounds = stats.rounds[1:]
    reasons = Counter(IDLE_REASONS.get(done.reason, "the draft length is 0") for done in rounds)
    return reasons.most_common(1)[0][0] if reasons else "the output is too short"


def figures(result: GenerationResult, models: SpeculativePipeline) -> str:
    """The four main figures of speed, in at most 100 characters."""
    stats, ending = result.stats, result.ending
    cut = f"{ending.label}: " if ending.remedy else ""
    speed = f"{cut}{stats.tokens_per_second:.0f} tokens/s"
    accepted = f"{stats.acceptance_rate:.0%} of drafts accepted"
    per_pass = f"{stats.tokens_per_main_pass:.1f} tokens per pass"
    if models.drafter == "none":
        return f"{speed}, {per_pass}"
    if not stats.drafted:
        return f"{speed}, not speculated: {why_plain(stats)}"
    reasons = [done.reason for done in stats.rounds[1:]]
    if reasons.count("loses") > len(reasons) / 2:
        return f"{speed}, drafting was stopped, as it did not pay: {accepted}"
    speedup = estimate_speedup(stats, models.costs)
    gain = "" if speedup is None else f"about {speedup:.1f} times plain, "
    return f"{speed}, {gain}{accepted}, {per_pass}"


def estimate_speedup(stats: GenerationStats, curve: CostCurve) -> float | None:
    """The estimated speedup after the prefill; None if unknown.

    A plain token costs a pass over one token by the curve, at the speed of this generation: the
    median of its passes over as many tokens as the pass before, since plain decoding never changes
    the size. It is unknown until passes are measured, with shared passes, without drafts, and if
    the speed varied.

    In 46 generations of the embedded pair and SmolLM2-135M, 40 estimates were 0.85 to 1.15 of the
    measured ratio, with a median of 0.97. With a varying speed, 22 of 32 were.
    """
    main, rounds = curve.main, stats.rounds[1:]
    paces = sorted(
        done.verify_seconds / main.at(done.pass_tokens)
        for before, done in pairwise(stats.rounds)
        if done.pass_tokens in (before.pass_tokens, *main.static)
    )
    is_alone = all(done.num_sequences == 1 for done in rounds)
    if not curve.is_measured or not stats.drafted or not is_alone or len(paces) < MIN_PASSES:
        return None
    pace = median(paces)
    if paces[int(0.9 * len(paces))] > UNSTEADY * pace:
        return None
    plain = sum(done.num_generated * main.at(1) for done in rounds)
    return pace * plain / sum(done.seconds for done in rounds)


def warnings_of(result: GenerationResult) -> Iterator[str]:
    """Warnings about this output, one line each."""
    stats, remedy = result.stats, result.ending.remedy
    if result.finish_reason == "length":
        cut = f"cut after {stats.generated_tokens} tokens"
        yield f"warning: {cut}: {remedy}" if remedy else f"{cut} by --max-new-tokens"
    if stats.draft_failures:
        yield "warning: the draft model gave NaN, and was disabled: try --precision exact"


def details(result: GenerationResult, models: SpeculativePipeline) -> Iterator[str]:
    """All other statistics, a line each."""
    stats = result.stats
    rounds = [run for run in stats.draft_lengths if run["reason"] not in ("prefill", "")]
    lengths = [str(length) for length, _ in groupby(run["planned"] for run in rounds)] or ["0"]
    if len(lengths) > MAX_CHANGES:
        lengths = ["...", *lengths[-MAX_CHANGES:]]
    yield (
        f"prompt         {stats.prompt_tokens} tokens, {stats.cached_tokens} of them from the KV "
        f"cache; first token after {stats.time_to_first_token:.2f} s"
    )
    yield (
        f"output         {stats.generated_tokens} tokens in {stats.seconds:.2f} s; "
        f"ended by: {result.finish_message}"
    )
    yield (
        f"draft tokens   {stats.accepted} of {stats.drafted} accepted; "
        f"at most {', '.join(lengths)} in a pass"
    )
    if stats.outside_draft_vocabulary:
        yield f"not draftable  {stats.outside_draft_vocabulary} tokens of the output"
    yield (
        f"time           drafting {stats.draft_seconds:.2f} s, verification "
        f"{stats.verify_seconds:.2f} s, rollback {stats.rollback_seconds:.2f} s"
    )
    yield f"invariant      {stats.batch_invariant}"
    held = ", one sequence at a time" if stats.max_sequences == 1 else ""
    yield f"KV cache       {models.main.kv} ({models.main.reason}){held}"
    yield f"loaded         in {models.load_seconds:.2f} s"
    if models.profile is not None:
        yield f"profile        {models.profile}"
