"""`ov-specdec export`: convert checkpoints to OpenVINO IR with Optimum."""

import functools
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import click
from rich.markup import escape

from ov_specdec.cli.declare import options_of, own_options
from ov_specdec.cli.models import PIPELINE
from ov_specdec.cli.terminal import console, with_errors
from ov_specdec.description import About, describe
from ov_specdec.errors import (
    ExportError,
    Option,
    OptionError,
    TokenizerMismatchError,
    TransformersVersionError,
)
from ov_specdec.files import as_argument
from ov_specdec.loading.checkpoint_tokenizers import compare_checkpoints
from ov_specdec.loading.export import Exported, WeightFormat, export_model
from ov_specdec.loading.int4 import Int4Options
from ov_specdec.loading.source import open_source
from ov_specdec.pipeline_models import pair_models
from ov_specdec.text.pairing import PairingName

OUTPUT_OPTION = click.option(
    "--output",
    type=click.Path(path_type=Path),
    default=Path("models"),
    show_default=True,
    help="Parent folder of the exported model folders.",
)


@click.command()
@with_errors
@own_options
@options_of(describe(Int4Options))
@options_of(PIPELINE, "pairing")
@OUTPUT_OPTION
def export(
    *,
    main: Annotated[str | None, About("Main model: Hub name or folder.", metavar="NAME")] = None,
    draft: Annotated[str | None, About("Draft model: Hub name or folder.", metavar="NAME")] = None,
    weight_format: Annotated[WeightFormat, About("Type of the weights.")] = "fp16",
    draft_from_main: Annotated[
        Literal["int8", "int4"] | None,
        About("Also export the main model with these weights, as its own draft model."),
    ] = None,
    transformers: Annotated[
        str | None,
        About(
            "Export with this version, such as 5.0 or 5.2.*, in a separate environment in the "
            "user's cache. Installed packages stay unchanged.",
            metavar="VERSION",
        ),
    ] = None,
    trust_remote_code: Annotated[
        bool, About("Run Python code from the checkpoint. Read it first.")
    ] = False,
    pairing: PairingName | None,
    output: Path,
    **options: Any,
) -> None:
    """Export a main model, a draft model, or both.

    Models that were exported before are skipped. The tokenizers of a pair have to be the same,
    unless --pairing is given. `ov-specdec tune` measures whether a model pays as its own draft.

    Optimum exports some families only with certain versions of transformers. If another version is
    needed, this asks before it makes an environment for it, or names the --transformers to add.
    """
    int4 = Int4Options(**options)
    if main is None and draft is None and draft_from_main is None:
        raise OptionError(
            "no model is named: give --main NAME, --draft NAME or both, such as "
            "Qwen/Qwen2.5-0.5B-Instruct (see ov-specdec export --help)"
        )
    chosen = [(main, weight_format), (draft, weight_format)]
    if draft_from_main is not None:
        _check_own_draft(main, draft, weight_format, draft_from_main)
        chosen[1] = main, draft_from_main
    elif main is not None and draft is not None and pairing is None:
        _require_same_tokenizers(main, draft, trust_remote_code)
    wants_int4 = any(format_ == "int4" for _, format_ in chosen)
    how = {"trust_remote_code": trust_remote_code, "transformers": transformers}
    folders = []
    for name, format_ in chosen:
        if name is not None:
            # If no model is int4, the first export refuses these options.
            own = int4 if format_ == "int4" or not wants_int4 else None
            exported = _export(name, output, format_, own, **how)
            click.echo(f"{exported.folder}{'' if exported.is_new else ' (exists already)'}")
            folders.append(exported.folder)
    if len(folders) == len(chosen):
        click.echo(f"try: {_example(folders, pairing)}")


def _example(folders: Sequence[Path], pairing: PairingName | None) -> str:
    """A command to try with a main and a draft model."""
    sources = [open_source(folder) for folder in folders]
    _, paired = pair_models(sources, pairing)
    command = "transcribe FILE" if sources[0].folder.features else "generate PROMPT"
    models = "--main {} --draft {}".format(*map(as_argument, folders))
    return f"ov-specdec {command} {models}{f' --pairing {paired.name}' if paired else ''}"


def _require_same_tokenizers(main: str, draft: str, trust_remote_code: bool) -> None:
    """Refuse a pair that needs a pairing, before the long export."""
    with console.status("Comparing tokenizers"):
        report = compare_checkpoints(main, draft, trust_remote_code=trust_remote_code)
    if report is not None and not report.compatible:
        raise TokenizerMismatchError(
            f"{report.finding}, so nothing was exported: name a draft of the same family, or add ",
            Option("pairing", "auto"),
        )


def _export(name: str, output: Path, weight_format: str, *args: Any, **options: Any) -> Exported:
    """Export a model, with Optimum's required version of transformers if the user agrees."""
    doing = f"Exporting {name} as {weight_format}"
    try:
        with console.status(doing) as status:
            return export_model(
                *(name, output, weight_format, *args),
                on_note=functools.partial(click.echo, err=True),
                on_progress=lambda line: status.update(f"{doing}: {escape(line)}"),
                **options,
            )
    except TransformersVersionError as error:
        if options["transformers"] is not None:
            raise
        if not _agrees(error):
            raise ExportError(f"{error.finding}: run {_command(error.wanted)}") from error
        wanted = error.wanted
    return _export(name, output, weight_format, *args, **{**options, "transformers": wanted})


def _agrees(error: TransformersVersionError) -> bool:
    """Whether the user agrees to a new environment; asks only on a terminal."""
    if not on_terminal():
        return False
    click.echo(error.finding, err=True)
    question = f"Make an environment with transformers {error.wanted} in the cache folder?"
    return click.confirm(question, default=True, err=True)


def on_terminal() -> bool:
    """Whether a user can answer questions."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def _command(wanted: str) -> str:
    """The current command, with the required version."""
    words = ["ov-specdec", *sys.argv[1:], "--transformers", wanted]
    return " ".join(map(as_argument, words))


def _check_own_draft(
    main: str | None, draft: str | None, weight_format: str, draft_format: str
) -> None:
    if main is None:
        raise OptionError(f"--draft-from-main {draft_format} needs the model: give --main NAME")
    if draft is not None:
        raise OptionError(
            f"--draft '{draft}' contradicts --draft-from-main {draft_format}: leave out one of the "
            "two"
        )
    if weight_format == draft_format:
        raise OptionError(
            f"--draft-from-main {draft_format} would be the main model itself: choose another "
            "--weight-format for the main model"
        )
