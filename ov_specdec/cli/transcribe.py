"""`ov-specdec transcribe`: turn recordings into text and subtitles."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from ov_specdec.cli.app import USER_ERROR, end_interrupted
from ov_specdec.cli.declare import command, options_of, take, typed
from ov_specdec.cli.options import GENERATION, make_speech_pipeline
from ov_specdec.cli.terminal import progress, show_error
from ov_specdec.errors import AudioError, OptionError
from ov_specdec.generation.pipeline_options import SpeechPipelineOptions
from ov_specdec.options.model import by_group, option
from ov_specdec.speech.audio import require_libraries
from ov_specdec.speech.options import TranscriptionOptions
from ov_specdec.speech.segments import WITH_WORDS, Format, TranscriptionResult, collect, write
from ov_specdec.speech_pipeline import SpeechPipeline

SPEECH = SpeechPipelineOptions.model_fields


@command(
    "[MAIN] FILES...",
    options_of(TranscriptionOptions.model_fields),
    options_of(GENERATION, "seed", *by_group(GENERATION)["Speculation"]),
    options_of(SPEECH, main=None),  # may be the first argument
)
def transcribe(
    *,
    arguments: tuple[str, ...],
    form: Format = option(
        "txt", "Format of the output; srt and vtt are subtitles.", flag="format", group="Output"
    ),
    output: Path | None = option(
        None, "Write a file for each recording into this folder.", unset="stdout", metavar="DIR"
    ),
    max_new_tokens: int | None = option(
        None,
        "Maximum output tokens for each window of 30 seconds.",
        ge=0,
        unset="up to the model's context",
        group="Length and end of the output",
    ),
    **options: Any,
) -> None:
    """Transcribe FILES (wav, mp3, m4a, webm ...) with a Whisper.

    A recording that cannot be read is reported, and the others are transcribed; the exit code is
    then 2.
    """
    loading, files = take(options, SPEECH), tuple(map(Path, arguments))
    if loading["main"] is None:
        raise OptionError("no model is named: give a Whisper before FILES, or with --main")
    given = _complete(typed(options), max_new_tokens, form)
    targets = _targets(files, form, output)
    require_libraries()
    has_failed = False
    with make_speech_pipeline(loading) as pipeline:
        for file, target in zip(files, targets, strict=True):
            result = _transcribe(pipeline, file, given)
            if result is None:
                has_failed = True
            else:
                _show(result, form, file, target)
    if has_failed:
        sys.exit(USER_ERROR)


def _complete(given: dict[str, Any], max_new_tokens: int | None, form: Format) -> dict[str, Any]:
    """The options of transcriptions, checked before models are loaded."""
    given = {**given, "return_timestamps": form != "txt"}
    if max_new_tokens is not None:
        given["max_new_tokens"] = max_new_tokens
    if TranscriptionOptions.from_kwargs(given).word_timestamps and form not in WITH_WORDS:
        problem = f"{{word_timestamps}} has no effect on {form}"
        remedy = f"add --format {' or --format '.join(WITH_WORDS)}"
        raise OptionError(f"{problem}: {remedy}", word_timestamps=True)
    return given


def _targets(files: tuple[Path, ...], form: str, output: Path | None) -> list[Path | None]:
    """The output files; `OptionError` if no recording exists."""
    if not any(file.is_file() for file in files):
        raise AudioError(f"'{files[0]}' is not a file: give a recording")
    if output is None:
        return [None] * len(files)
    targets = [output / f"{file.stem}.{form}" for file in files]
    if twice := [target for target in targets if targets.count(target) > 1]:
        raise OptionError(f"several recordings would be written to '{twice[0]}': rename one")
    output.mkdir(parents=True, exist_ok=True)
    return list(targets)


def _show(result: TranscriptionResult, form: Format, file: Path, target: Path | None) -> None:
    """Write a text, and a line about it on stderr."""
    text = write(result, form)
    if target is None:
        click.echo(text, nl=False)
    else:
        target.write_text(text, encoding="utf-8")
        click.echo(target)
    click.echo(f"{file}: {summary(result)}", err=True)


def _transcribe(
    pipeline: SpeechPipeline, file: Path, options: Mapping[str, Any]
) -> TranscriptionResult | None:
    """Transcribe one recording, with a progress bar on stderr; None, and its error, if invalid."""
    chunks = []
    try:
        with (
            pipeline.stream(file, **options) as stream,
            progress(f"{file.name} (s)", stream.audio_seconds) as update,
        ):
            for chunk in stream:
                chunks.append(chunk)
                update(completed=chunk.end)
    except AudioError as error:
        show_error(error)
        return None
    except KeyboardInterrupt:
        done = chunks[-1].end if chunks else 0.0
        end_interrupted(f"interrupted after {done:.0f} s of '{file}'")
    return collect(chunks)


def summary(result: TranscriptionResult) -> str:
    """A transcription's statistics in one line."""
    stats, decoding = result.stats, result.stats.generation
    parts = [
        f"{stats.audio_seconds:.1f} s in {stats.seconds:.2f} s "
        f"(real-time factor {stats.real_time_factor:.3f}, encoder {stats.encoder_share:.0%})",
        f"language {result.language or 'not detected'}",
        f"{decoding.generated_tokens} tokens, {decoding.accepted} of {decoding.drafted} draft "
        f"tokens accepted ({decoding.acceptance_rate:.0%}), "
        f"{decoding.tokens_per_main_pass:.1f} tokens per main pass",
    ]
    if decoding.draft_failures:
        parts.append(f"draft failures {decoding.draft_failures}")
    if stats.num_skipped:
        parts.append(f"windows without speech: {stats.num_skipped}")
    if stats.num_retries:
        parts.append(f"retried outputs: {stats.num_retries}")
    return " | ".join(parts)
