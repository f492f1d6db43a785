"""`ov-specdec generate`: one prompt, one continuation."""

from collections.abc import Mapping
from typing import Any

import click

from ov_specdec.cli.declare import options_of, own_options
from ov_specdec.cli.messages import end_interrupted
from ov_specdec.cli.models import make_pipeline
from ov_specdec.cli.options import GENERATION, LOGPROBS, shared_options
from ov_specdec.cli.summary import details, figures, warnings_of
from ov_specdec.cli.terminal import print_json, with_errors
from ov_specdec.errors import Option, OptionError
from ov_specdec.options.generation import GenerationOptions
from ov_specdec.options.model import option
from ov_specdec.results.chunks import GenerationResult, ResultBuilder
from ov_specdec.results.logprobs import TokenLogprobs, finite
from ov_specdec.text.prompt import Prompt
from ov_specdec.text.token_bytes import as_text
from ov_specdec.text.tokenizer import Tokenizer


@click.command()
@with_errors
@options_of(GENERATION, *LOGPROBS)
@own_options
@shared_options
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
            raise OptionError(Option(name, value), " is shown with --json only: give that too")
    models = make_pipeline(pipeline)
    if as_json:
        result = models.generate(prompt, generation)
        print_json({**as_dict(result), **scores(result, models.tokenizer)})
        return
    output = ResultBuilder()
    try:
        with models.stream(prompt, generation) as stream:
            for chunk in stream:
                output.add(chunk)
                click.echo(chunk.text, nl=False)
    except KeyboardInterrupt:
        click.echo()
        end_interrupted(f"interrupted after {len(output.token_ids)} tokens")
    click.echo()
    result = output.result
    rest = details(result, models) if verbose else ()
    for line in (figures(result, models), *warnings_of(result), *rest):
        click.echo(line, err=True)


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
    """The requested log-probabilities of a result, for JSON."""
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
    """A token, its text and its log-probability; JSON has no infinity."""
    return {
        "token_id": token_id,
        "text": as_text(tokenizer.piece(token_id)),
        "logprob": None if logprob is None else finite(logprob),
    }
