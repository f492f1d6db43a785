"""`ov-specdec export`: convert checkpoints to OpenVINO IR with Optimum."""

from pathlib import Path
from shlex import quote
from typing import Any, Literal

import click

from ov_specdec.cli.declare import command, options_of, take
from ov_specdec.cli.options import PIPELINE
from ov_specdec.cli.terminal import console
from ov_specdec.errors import OptionError, TokenizerMismatchError
from ov_specdec.models.export import Int4Options, WeightFormat, export_model
from ov_specdec.models.exported import compare_checkpoints, open_exported, pair_models
from ov_specdec.models.heads import needs_main
from ov_specdec.models.locate import is_exported, locate
from ov_specdec.options.model import Options, option
from ov_specdec.text.pairing import PairingName


class ExportOptions(Options):
    """Options of `export`, besides those of int4 weights."""

    main: str | None = option(
        None, "Main model: Hub name or folder.", metavar="NAME", group="Models"
    )
    draft: str | None = option(None, "Draft model: Hub name or folder.", metavar="NAME")
    weight_format: WeightFormat = option("fp16", "Type of the weights.", group="Weights")
    draft_from_main: Literal["int8", "int4"] | None = option(
        None, "Also export the main model with these weights, as its own draft model."
    )
    transformers: str | None = option(
        None,
        "Export with this version, such as 5.0 or 5.2.*, which uv lays over the installed "
        "packages. They stay unchanged.",
        metavar="VERSION",
        group="Options",
    )
    trust_remote_code: bool = option(False, "Run Python code from the checkpoint. Read it first.")
    output: Path = option(
        Path("models"), "Parent folder of the exported model folders.", metavar="DIR"
    )


@command(
    "[MAIN] [DRAFT]",
    options_of(Int4Options.model_fields),
    options_of(PIPELINE, "pairing"),
    options_of(ExportOptions.model_fields),
)
def export(pairing: PairingName | None, **options: Any) -> None:
    """Export a main model, a draft model, or both.

    Models that were exported before are skipped. The tokenizers of a pair have to be the same,
    unless --pairing is given. `ov-specdec tune` measures whether a model pays as its own draft.

    EAGLE-3 heads and PARD-2 models read hidden states of --main, which may be exported already.

    Optimum exports some families only with certain versions of transformers. Where it asks for
    another one, add that as --transformers.
    """
    asked = ExportOptions(**take(options, ExportOptions.model_fields))
    int4 = Int4Options(**options)
    chosen = _choose(asked, pairing)
    wants_int4 = any(format_ == "int4" for _, format_ in chosen)
    how: dict[str, Any] = {
        "trust_remote_code": asked.trust_remote_code,
        "transformers": asked.transformers,
    }
    main, draft, folders = asked.main, asked.draft, list[Path]()
    if main and draft and is_exported(main) and needs_main(draft):
        folders, chosen = [locate(main)], chosen[1:]
    for name, format_ in chosen:
        # If no model is int4, the first export refuses these options.
        own = int4 if format_ == "int4" or not wants_int4 else None
        first = folders[0] if folders else None
        exported = export_model(name, asked.output, format_, own, main=first, **how)
        click.echo(f"{exported.folder}{'' if exported.is_new else ' (exists already)'}")
        folders.append(exported.folder)
    if len(folders) == 2:
        pair = [open_exported(folder) for folder in folders]
        _, paired = pair_models(pair, pairing)
        command = "transcribe FILE" if pair[0].folder.features else "generate PROMPT"
        models = "--main {} --draft {}".format(*(quote(str(folder)) for folder in folders))
        with_pairing = f" --pairing {paired.used}" if paired else ""
        click.echo(f"try: ov-specdec {command} {models}{with_pairing}")


def _choose(asked: ExportOptions, pairing: PairingName | None) -> list[tuple[str, WeightFormat]]:
    """The models to export, and the types of their weights.

    Compares the tokenizers of a pair, before a long export. Raises `OptionError`, and
    `TokenizerMismatchError` unless a pairing is given.
    """
    main, draft = asked.main, asked.draft
    if main is None and draft is None:
        raise OptionError(
            "no model is named: give --main NAME, --draft NAME or both, such as "
            "Qwen/Qwen2.5-0.5B-Instruct (see ov-specdec export --help)"
        )
    chosen = [(name, asked.weight_format) for name in (main, draft) if name is not None]
    if asked.draft_from_main is not None:
        _check_own_draft(draft, asked.weight_format, asked.draft_from_main)
        return [*chosen, (chosen[0][0], asked.draft_from_main)]
    if main is not None and draft is not None and pairing is None:
        with console.status("Comparing tokenizers"):
            report = compare_checkpoints(main, draft, trust_remote_code=asked.trust_remote_code)
        if report is not None and not report.compatible and not needs_main(draft):
            raise TokenizerMismatchError(
                f"{report.finding}, so nothing was exported: name a draft of the same family, or "
                "add {pairing}",
                pairing="auto",
            )
    return chosen


def _check_own_draft(draft: str | None, weight_format: str, draft_format: str) -> None:
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
