"""Compares texts on a device with those of the CPU, for users of that device to run."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ov_specdec.chunks import GenerationResult
from ov_specdec.loading.devices import Precision
from ov_specdec.pipeline import SpeculativePipeline
from ov_specdec.tuning.candidates import PROMPTS

LENGTHS = (0, 1, 4, 8)
"""Draft lengths; constant, because adaptive ones depend on times, which differ by device."""

NUM_TOKENS = 48

TOGETHER = 4
"""Draft length of concurrent texts, and of those in the default precision."""


BEGINNING = 8
"""First tokens that half of the texts in the default precision share with those of the CPU."""


@dataclass(frozen=True)
class Agreement:
    """The number of texts of one way of decoding that equal their reference.

    way: precision, KV cache and draft length. reference: its name. num_needed: how many have to be
    equal; not all in f16, where rounding decides between nearly tied tokens.
    """

    way: str
    reference: str
    num_equal: int
    num_texts: int
    num_needed: int
    num_accepted: int
    num_drafted: int

    @property
    def is_broken(self) -> bool:
        """Whether too many texts differ."""
        return self.num_equal < self.num_needed

    def __str__(self) -> str:
        drafted = f", {self.num_accepted} of {self.num_drafted} draft tokens accepted"
        verdict = "" if self.num_equal == self.num_texts else ": rounding differs"
        if self.is_broken:
            verdict = ": WRONG"
        return (
            f"{self.way}: {self.num_equal} of {self.num_texts} texts equal {self.reference}"
            f"{drafted if self.num_drafted else ''}{verdict}"
        )


def compare_with_cpu(
    main: str | Path | None,
    draft: str | Path | None,
    device: str,
    precision: Precision = "default",
    properties: Mapping[str, str] | None = None,
) -> Iterator[Agreement]:
    """Decode the same prompts on the CPU and on a device, in several ways.

    First in `exact` precision, plain and speculative, alone and together, on each KV cache that the
    model supports there; then in the given precision with the given properties. Raises the errors
    of `SpeculativePipeline`.
    """
    drafter: dict[str, Any] = {"draft": draft, "profile": "none"}
    if main is not None and draft is None:
        drafter = {"drafter": "suffix"}
    with SpeculativePipeline(main, drafter="none", precision="exact") as pipeline:
        right = _texts(pipeline, 0)
    exact = {**drafter, "device": device, "precision": "exact"}
    with SpeculativePipeline(main, **exact) as pipeline:
        kv = pipeline.main.kv
        yield from _compare_all(pipeline, right)
    if kv == "paged":
        with SpeculativePipeline(main, kv="stateful", **exact) as pipeline:
            yield from _compare_all(pipeline, right)
    usual = {**drafter, "device": device, "precision": precision, "properties": properties}
    with SpeculativePipeline(main, **usual) as pipeline:
        plain, speculative = _texts(pipeline, 0), _texts(pipeline, TOGETHER)
    way = f"{precision}, {kv}"
    begun = [ids[:BEGINNING] for ids in _ids(plain)], [ids[:BEGINNING] for ids in _ids(right)]
    half = -(-len(right) // 2)
    yield _compare(f"{way}, plain", f"the CPU's in {BEGINNING} tokens", *begun, plain, half)
    ids = _ids(speculative), _ids(plain)
    yield _compare(f"{way}, draft length {TOGETHER}", "the plain ones there", *ids, speculative, 0)


def _compare_all(
    pipeline: SpeculativePipeline, right: Sequence[GenerationResult]
) -> Iterator[Agreement]:
    """Texts in f32, all of which have to be equal."""
    kv = pipeline.main.kv
    for length in LENGTHS:
        texts = _texts(pipeline, length)
        way = f"exact, {kv}, draft length {length}" if length else f"exact, {kv}, plain"
        yield _compare(way, "the CPU's", _ids(texts), _ids(right), texts, len(right))
    texts = pipeline.generate_batch(PROMPTS, **_options(TOGETHER))
    way = f"exact, {kv}, together"
    yield _compare(way, "the CPU's", _ids(texts), _ids(right), texts, len(right))


def _options(length: int) -> dict[str, Any]:
    return {"max_new_tokens": NUM_TOKENS, "num_assistant_tokens": length, "ignore_eos": True}


def _texts(pipeline: SpeculativePipeline, length: int) -> list[GenerationResult]:
    return [pipeline.generate(prompt, **_options(length)) for prompt in PROMPTS]


def _ids(texts: Sequence[GenerationResult]) -> list[list[int]]:
    return [text.token_ids for text in texts]


def _compare(
    way: str,
    reference: str,
    ids: Sequence[list[int]],
    wanted: Sequence[list[int]],
    texts: Sequence[GenerationResult],
    num_needed: int,
) -> Agreement:
    return Agreement(
        way,
        reference,
        sum(own == other for own, other in zip(ids, wanted, strict=True)),
        len(wanted),
        num_needed,
        sum(text.stats.accepted for text in texts),
        sum(text.stats.drafted for text in texts),
    )
