"""Compares texts on a device with those of the CPU, for users of that device to run."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ov_specdec.measure.prompts import TUNING
from ov_specdec.models.devices import Precision
from ov_specdec.pipeline import SpeculativePipeline
from ov_specdec.results.chunks import GenerationResult

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
        return (
            f"{self.way}: {self.num_equal} of {self.num_texts} texts equal {self.reference}"
            f"{drafted if self.num_drafted else ''}{': WRONG' if self.is_broken else verdict}"
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
    common: dict[str, Any] = {"device": device, "draft": draft, "profile": "none"}
    if main is not None and draft is None:
        common = {"device": device, "drafter": "suffix"}
    with SpeculativePipeline(main, drafter="none", precision="exact") as pipeline:
        right = _texts(pipeline, 0)
    num_texts, found = len(right), list[str]()
    for kv in ("auto", "stateful"):
        if kv in found:
            break
        with SpeculativePipeline(main, **common, precision="exact", kv=kv) as pipeline:
            found.append(pipeline.main.kv)
            way = f"exact, {found[-1]}"
            for length in LENGTHS:
                own = f"{way}, draft length {length}" if length else f"{way}, plain"
                yield _compare(own, _texts(pipeline, length), right, "the CPU's", num_texts)
            texts = pipeline.generate_batch(TUNING, **_options(TOGETHER))
            yield _compare(f"{way}, together", texts, right, "the CPU's", num_texts)
    settings = {**common, "precision": precision, "properties": properties}
    with SpeculativePipeline(main, **settings) as pipeline:
        plain, speculative = _texts(pipeline, 0), _texts(pipeline, TOGETHER)
    way, name = f"{precision}, {found[0]}", f"the CPU's in {BEGINNING} tokens"
    yield _compare(f"{way}, plain", plain, right, name, -(-num_texts // 2), BEGINNING)
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
    """How the first tokens of texts agree with others."""
    pairs = list(zip(texts, others, strict=True))
    return Agreement(
        way,
        reference,
        sum(own.token_ids[:num_tokens] == other.token_ids[:num_tokens] for own, other in pairs),
        len(pairs),
        num_needed,
        sum(text.stats.accepted for text in texts),
        sum(text.stats.drafted for text in texts),
    )
