"""`ov-specdec check` and `devices`: what fits a pair, batch invariance, devices and their texts."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from ov_specdec.cli.declare import MODELS, command, options_of
from ov_specdec.cli.options import COMPILATION, PIPELINE, verify_invariance
from ov_specdec.cli.terminal import console
from ov_specdec.errors import TokenizerMismatchError
from ov_specdec.generation.pipeline_options import is_pair
from ov_specdec.measure.methods import open_measured
from ov_specdec.measure.prompts import TUNING
from ov_specdec.models.agreement import Agreement, compare_caches
from ov_specdec.models.devices import (
    Precision,
    RuntimeConfig,
    describe_machine,
    find_device,
    openvino_core,
)
from ov_specdec.models.exported import compare_models, open_exported, pair_tokenizers
from ov_specdec.models.folder import ModelFolder
from ov_specdec.models.invariance import look_up
from ov_specdec.models.locate import locate
from ov_specdec.pipeline import SpeculativePipeline
from ov_specdec.results.chunks import GenerationResult
from ov_specdec.results.stats import NOT_INVARIANT, BatchInvariance

FAILED = 1

DRAFT_LENGTHS = (0, 1, 4, 8)
"""Draft lengths; constant, because adaptive ones depend on times, which differ by device."""

NUM_TOKENS = 48

TOGETHER = 4
"""Draft length of concurrent texts, and of those in the default precision."""

SHARED_TOKENS = 8
"""First tokens that half of the texts in the default precision share with those of the CPU."""


@command("[MAIN] [DRAFT]", options_of(PIPELINE, *MODELS, "device", *COMPILATION))
def check(main: str | None, draft: str | None, device: str, **options: Any) -> None:
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
    if is_pair(main, draft) and not show_comparison(main, draft):
        sys.exit(FAILED)
    folder = ModelFolder.read(locate(main))
    if not find_device(device).is_cpu:
        click.echo(f"device: {describe_machine(device)}")
        is_right = True
        with console.status("Decoding on both devices"):
            for found in compare_with_cpu(main, draft, device, **options):
                click.echo(found.finding)
                is_right = is_right and not found.is_broken
    elif is_right := folder.is_encoder_decoder:  # with a single KV cache
        click.echo(f"batch invariant: {NOT_INVARIANT}")
    else:
        click.echo(f"batch invariant: {verify_passes(main, draft, device=device, **options)}")
        with console.status("Comparing KV caches"):
            found = compare_caches(folder)
        click.echo(f"KV caches: {found.finding}")
        is_right = not found.is_broken
    if not is_right:
        sys.exit(FAILED)


def compare_with_cpu(
    main: str | None,
    draft: str | None,
    device: str,
    precision: Precision = "default",
    properties: Mapping[str, str] | None = None,
) -> Iterator[Agreement]:
    """Decode the same prompts on the CPU and on a device, in several ways.

    First in `exact` precision, plain and speculative, alone and together, on each KV cache that the
    model supports there; then in the given precision with the given properties. Raises the errors
    of `SpeculativePipeline`.
    """
    with open_measured(main, drafter="none", precision="exact") as pipeline:
        right = _texts(pipeline, 0)
    found = list[str]()
    for kv in ("auto", "stateful"):
        if kv in found:
            break
        with open_measured(main, draft, device=device, precision="exact", kv=kv) as pipeline:
            found.append(pipeline.main.kv)
            way = f"exact, {found[-1]}"
            for length in DRAFT_LENGTHS:
                own = f"{way}, draft length {length}" if length else f"{way}, plain"
                yield _compare(own, _texts(pipeline, length), right, "the CPU's", len(right))
            texts = pipeline.generate_batch(TUNING, **_options(TOGETHER))
            yield _compare(f"{way}, together", texts, right, "the CPU's", len(right))
    settings = {"device": device, "precision": precision, "properties": properties}
    with open_measured(main, draft, **settings) as pipeline:
        plain, speculative = _texts(pipeline, 0), _texts(pipeline, TOGETHER)
    way, name = f"{precision}, {found[0]}", f"the CPU's in {SHARED_TOKENS} tokens"
    yield _compare(f"{way}, plain", plain, right, name, -(-len(right) // 2), SHARED_TOKENS)
    way = f"{way}, draft length {TOGETHER}"
    yield _compare(way, speculative, plain, "the plain ones there", 0)


def _options(length: int) -> dict[str, Any]:
    return {"max_new_tokens": NUM_TOKENS, "num_assistant_tokens": length, "ignore_eos": True}


def _texts(pipeline: SpeculativePipeline, length: int) -> list[GenerationResult]:
    return [pipeline.generate(prompt, **_options(length)) for prompt in TUNING]


def _compare(
    way: str,
    texts: Sequence[GenerationResult],
    others: Sequence[GenerationResult],
    reference: str,
    num_needed: int,
    num_tokens: int = NUM_TOKENS,
) -> Agreement:
    """How the first tokens of texts agree with others.

    way: precision, KV cache and draft length. num_needed: how many have to be equal; not all in
    f16, where rounding decides between nearly tied tokens.
    """
    pairs = zip(texts, others, strict=True)
    equal = [own.token_ids[:num_tokens] == other.token_ids[:num_tokens] for own, other in pairs]
    finding = f"{way}: {sum(equal)} of {len(equal)} texts equal {reference}"
    if num_drafted := sum(text.stats.drafted for text in texts):
        accepted = sum(text.stats.accepted for text in texts)
        finding += f", {accepted} of {num_drafted} draft tokens accepted"
    is_broken = sum(equal) < num_needed
    if not all(equal):
        finding += ": WRONG" if is_broken else ": rounding differs"
    return Agreement(finding, is_broken)


def verify_passes(main: str | None, draft: str | None, **options: Any) -> BatchInvariance:
    """Whether passes of the main model agree, with the settings of the pair."""
    options |= {"draft": draft} if is_pair(main, draft) else {"drafter": "none"}
    for size in (1, 2):  # passes over one sequence and over several have different forms
        with console.status("Loading models"):
            pipeline = open_measured(main, profile="auto", max_batch_size=size, **options)
        with pipeline:
            known = verify_invariance(pipeline)
        if not known.is_verified:
            break
    return known


def show_comparison(main: str | None, draft: str | None) -> bool:
    """Print the comparison; whether the two are compatible."""
    with console.status("Reading models"):
        exported = open_exported(locate(main)), open_exported(locate(draft, "draft"))
        report = compare_models(*exported)
    verdict = "compatible" if report.compatible else "not compatible"
    click.echo("\n".join([*report.lines(), verdict]))
    if not report.compatible:
        try:
            click.echo("\n".join(pair_tokenizers(*exported).lines()))
        except TokenizerMismatchError as error:
            click.echo(f"pairings: none ({error})")
    return report.compatible


@command("[MAIN]", options_of(PIPELINE, "main"))
def devices(main: str | None) -> None:
    """List OpenVINO's devices: name, capabilities, and the KV cache of --kv auto.

    The last column says whether this package was measured on such a device, only simulated, or
    never run.

    With MAIN, it also shows whether the model's passes are batch-invariant there, if known.
    """
    folder = None if main is None else ModelFolder.read(locate(main))
    for device in map(find_device, openvino_core().available_devices):
        kv = "paged" if device.supports_paged else "stateful"
        capabilities = " ".join(device.capabilities)
        columns = [device.name, device.full_name, capabilities, f"kv {kv}", device.seen]
        if folder is not None:
            columns.append(f"batch invariant {look_up(folder, RuntimeConfig(device.name))}")
        click.echo("\t".join(columns))
