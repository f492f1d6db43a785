"""`ov-specdec generate`: one prompt, one continuation."""

from collections.abc import Mapping
from typing import Any

import click

from ov_specdec.chunks import Chunk, GenerationResult, collect
from ov_specdec.cli.generation_options import LOGPROBS, options_of
from ov_specdec.cli.messages import end_interrupted
from ov_specdec.cli.options import make_pipeline, shared_options, with_options
from ov_specdec.cli.terminal import print_json, with_errors
from ov_specdec.errors import Option, OptionError
from ov_specdec.logprobs import TokenLogprobs, finite
from ov_specdec.pipeline import SpeculativePipeline
from ov_specdec.stats import GenerationStats
from ov_specdec.text.prompt import Prompt
from ov_specdec.text.tokenizer import Tokenizer

MAX_SHOWN = 8
"""Changes of the draft length that the summary shows."""


@click.command()
@with_errors
@with_options(options_of(LOGPROBS))
@shared_options
def generate(
    prompt: Prompt, pipeline: Mapping[str, Any], generation: Mapping[str, Any], as_json: bool
) -> None:
    """Continue PROMPT: text on stdout as it comes, then a line of statistics on stderr."""
    for name in ("logprobs", "prompt_logprobs"):
        if name in generation and not as_json:
            raise OptionError(
                Option(name, generation[name]), " is shown with --json only: give that too"
            )
    models = make_pipeline(pipeline)
    if as_json:
        result = models.generate(prompt, **generation)
        print_json({**as_dict(result), **scores(result, models.tokenizer)})
        return
    chunks: list[Chunk] = []
    try:
        with models.stream(prompt, **generation) as stream:
            for chunk in stream:
                chunks.append(chunk)
                click.echo(chunk.text, nl=False)
    except KeyboardInterrupt:
        click.echo()
        num_generated = sum(len(chunk.token_ids) for chunk in chunks)
        end_interrupted(f"interrupted after {num_generated} tokens")
    click.echo()
    click.echo(summary(collect(chunks), models), err=True)


def as_dict(result: GenerationResult) -> dict[str, Any]:
    """A result for JSON, without log-probabilities."""
    return {
        "text": result.text,
        "token_ids": result.token_ids,
        "prompt_tokens": result.stats.prompt_tokens,
        "cached_tokens": result.stats.cached_tokens,
        "generated_tokens": len(result.token_ids),
        "finish_reason": result.finish_reason,
        "stats": result.stats.as_dict(),
    }


def scores(result: GenerationResult, tokenizer: Tokenizer) -> dict[str, Any]:
    """The log-probabilities of a result for JSON, where they were asked for."""
    return {
        name: [_describe(token, tokenizer) for token in tokens]
        for name in ("logprobs", "prompt_logprobs")
        if (tokens := getattr(result, name))
    }


def _describe(token: TokenLogprobs, tokenizer: Tokenizer) -> dict[str, Any]:
    """A token's log-probabilities for JSON, with texts."""
    top = [_scored(token_id, logprob, tokenizer) for token_id, logprob in token.top]
    return {**_scored(token.token_id, token.logprob, tokenizer), "top": top}


def _scored(token_id: int, logprob: float | None, tokenizer: Tokenizer) -> dict[str, Any]:
    """A token, what it adds to a text, and its log-probability; JSON has no infinity."""
    text = tokenizer.piece(token_id).decode(errors="backslashreplace")
    return {
        "token_id": token_id,
        "text": text,
        "logprob": None if logprob is None else finite(logprob),
    }


def describe_lengths(stats: GenerationStats) -> str:
    """The draft lengths in the order in which they were chosen, and the last reason."""
    runs = [run for run in stats.draft_lengths if run["reason"] not in ("prefill", "")]
    if not runs:
        return "0"
    lengths = [run["planned"] for run in runs]
    changes = [n for i, n in enumerate(lengths) if i == 0 or n != lengths[i - 1]]
    shown = [str(n) for n in changes[-MAX_SHOWN:]]
    dots = ["..."] if len(changes) > MAX_SHOWN else []
    return f"{', '.join(dots + shown)} ({runs[-1]['reason']})"


def summary(result: GenerationResult, models: SpeculativePipeline) -> str:
    """A result's statistics in one line."""
    stats = result.stats
    reused = f", {stats.cached_tokens} of {stats.prompt_tokens} prompt tokens from the KV cache"
    held = ", one sequence at a time" if stats.max_sequences == 1 else ""
    parts = [
        f"{stats.generated_tokens} tokens in {stats.seconds:.2f} s "
        f"({stats.tokens_per_second:.1f} tokens/s, first after {stats.time_to_first_token:.2f} s)"
        f"{reused if stats.cached_tokens else ''}",
        f"{stats.accepted} of {stats.drafted} draft tokens accepted "
        f"({stats.acceptance_rate:.0%}), {stats.tokens_per_main_pass:.1f} tokens per main pass",
        f"drafting {stats.draft_seconds:.2f} s, verifying {stats.verify_seconds:.2f} s, "
        f"rollback {stats.rollback_seconds:.2f} s",
        f"draft length {describe_lengths(stats)}",
        f"batch invariant {stats.batch_invariant}",
        f"KV cache {models.main.kv} ({models.main.reason}){held}, loaded in "
        f"{models.load_seconds:.2f} s",
    ]
    if stats.draft_failures:
        parts.append(f"draft failures {stats.draft_failures}")
    if models.profile is not None:
        parts.append(f"profile {models.profile}")
    return " | ".join(parts)
