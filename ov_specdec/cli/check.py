"""`ov-specdec check`: compatibility of a pair, batch invariance, and agreement of devices."""

import sys
from collections.abc import Mapping
from typing import Any

import click

from ov_specdec.cli.declare import options_of
from ov_specdec.cli.models import COMPILATION, MODELS, PIPELINE, check_invariance, models_first
from ov_specdec.cli.terminal import console, with_errors
from ov_specdec.errors import TokenizerMismatchError
from ov_specdec.generation.pipeline_options import require_main
from ov_specdec.measure.device_check import compare_with_cpu
from ov_specdec.models.agreement import compare_caches
from ov_specdec.models.devices import describe_machine, find_device, openvino_core
from ov_specdec.models.folder import ModelFolder
from ov_specdec.models.locate import embedded_folder, locate
from ov_specdec.models.source import check_pair, open_source, pair_tokenizers
from ov_specdec.pipeline import SpeculativePipeline
from ov_specdec.results.stats import NOT_INVARIANT, BatchInvariance

FAILED = 1


@click.command()
@with_errors
@models_first(*MODELS)
@options_of(PIPELINE, *MODELS, "device", *COMPILATION)
def check(main: str | None, draft: str | None, **options: Any) -> None:
    """Compare tokenizers of MAIN and DRAFT, and MAIN's logits across passes and KV caches.

    MAIN and DRAFT default to the embedded pair. The exit code is 1 if the tokenizers differ; the
    report then lists possible pairings (--pairing of other commands).

    The next line says whether MAIN's passes are batch-invariant on this machine. If they are, its
    texts are bitwise the same with any drafter, at any concurrency. The result is cached. The last
    line compares MAIN's logits on both KV caches, in f32, past its windows, chunks and
    original context length (LongRoPE); the exit code is 1 if they differ.

    For another --device than the CPU, it compares texts with those of the CPU instead. The exit
    code is 1 if a text differs that must not; please report that.
    """
    require_main(main, draft)
    pair = (embedded_folder("main"), embedded_folder("draft")) if main is None else (main, draft)
    if pair[1] is not None and not compare_tokenizers(str(pair[0]), str(pair[1])):
        sys.exit(FAILED)
    folder = ModelFolder.read(locate(str(pair[0])))
    if not find_device(openvino_core(), options["device"]).is_cpu:
        is_right = compare_texts(main, draft, **options)
    elif is_right := folder.is_encoder_decoder:  # with a single KV cache
        click.echo(f"batch invariant: {NOT_INVARIANT}")
    else:
        click.echo(f"batch invariant: {check_passes(main, draft, options)}")
        with console.status("Comparing KV caches"):
            found = compare_caches(folder)
        click.echo(f"KV caches: {found}")
        is_right = not found.is_broken
    if not is_right:
        sys.exit(FAILED)


def compare_texts(main: str | None, draft: str | None, device: str, **options: Any) -> bool:
    """Print how texts on a device and on the CPU agree; whether all required ones do."""
    click.echo(f"device: {describe_machine(device)}")
    is_right = True
    with console.status("Decoding on both devices") as status:
        for agreement in compare_with_cpu(main, draft, device, **options):
            click.echo(str(agreement))
            is_right = is_right and not agreement.is_broken
            status.update(f"Decoding on both devices; last: {agreement.way}")
    return is_right


def check_passes(
    main: str | None, draft: str | None, options: Mapping[str, Any]
) -> BatchInvariance:
    """Whether passes of the main model agree, with the settings of the pair."""
    is_pair = main is None or draft is not None
    drafter: dict[str, Any] = {"draft": draft} if is_pair else {"drafter": "none"}
    for size in (1, 2):  # passes over one sequence and over several have different forms
        with console.status("Loading models"):
            pipeline = SpeculativePipeline(main, max_batch_size=size, **drafter, **options)
        with pipeline:
            known = check_invariance(pipeline)
        if not known.is_verified:
            break
    return known


def compare_tokenizers(main: str, draft: str) -> bool:
    """Print the comparison; whether the two are compatible."""
    with console.status("Reading models"):
        sources = open_source(locate(main)), open_source(locate(draft))
        report = check_pair(*sources)
    verdict = "compatible" if report.compatible else "not compatible"
    click.echo("\n".join([*report.lines(), verdict]))
    if not report.compatible:
        try:
            click.echo("\n".join(pair_tokenizers(*sources).lines()))
        except TokenizerMismatchError as error:
            click.echo(f"pairings: none ({error})")
    return report.compatible
