"""Whether texts on a device are those of the CPU: what a person who has that device can run."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ov_specdec.chunks import GenerationResult
from ov_specdec.loading.devices import find_device, openvino_core
from ov_specdec.pipeline import SpeculativePipeline
from ov_specdec.tuning.candidates import PROMPTS

LENGTHS = (0, 1, 4, 8)
"""Draft lengths; constant, for those that adapt follow times, which differ by device."""

NUM_TOKENS = 48

TOGETHER = 4
"""Draft length of texts that share passes, and of those in the default precision."""


@dataclass(frozen=True)
class Agreement:
    """How many texts of one way of decoding are those of plain decoding elsewhere.

    way: precision, KV cache and draft length. reference: what they are compared with. is_promised:
    whether all of them have to agree; in f16, rounding decides between tokens that are as likely.
    """

    way: str
    reference: str
    num_equal: int
    num_texts: int
    num_accepted: int
    num_drafted: int
    is_promised: bool = True

    @property
    def is_broken(self) -> bool:
        """Whether texts differ that must not."""
        return self.is_promised and self.num_equal < self.num_texts

    def __str__(self) -> str:
        drafted = f", {self.num_accepted} of {self.num_drafted} draft tokens accepted"
        verdict = "" if self.num_equal == self.num_texts else ": they differ"
        if verdict and not self.is_promised:
            verdict = ": rounding differs"
        return (
            f"{self.way}: {self.num_equal} of {self.num_texts} texts are those of {self.reference}"
            f"{drafted if self.num_drafted else ''}{verdict}"
        )


def compare_with_cpu(
    main: str | Path | None, draft: str | Path | None, device: str, options: Mapping[str, Any]
) -> Iterator[Agreement]:
    """Decode the same prompts on the CPU and on a device, in one way after the other.

    In `exact` precision, plain and speculative, alone and together, on each KV cache that the
    device takes; then in the default one. options: of `SpeculativePipeline`. Raises what that
    raises.
    """
    drafter: dict[str, Any] = {"draft": draft}
    if main is not None and draft is None:
        drafter = {"drafter": "suffix"}
    fixed = {**options, "profile": "none", "batch_invariant": "auto"}
    with SpeculativePipeline(main, drafter="none", precision="exact", **fixed) as pipeline:
        wanted = _texts(pipeline, 0)
    on_device = {**fixed, **drafter, "device": device}
    is_paged = find_device(openvino_core(), device).takes_paged
    for kv in ("paged", "stateful") if is_paged else ("stateful",):
        with SpeculativePipeline(main, kv=kv, precision="exact", **on_device) as pipeline:
            for length in LENGTHS:
                texts = _texts(pipeline, length)
                yield _compare(f"exact, {kv}, {_describe(length)}", "the CPU", texts, wanted)
            together = pipeline.generate_batch(PROMPTS, **_options(TOGETHER))
            yield _compare(f"exact, {kv}, together", "the CPU", together, wanted)
    with SpeculativePipeline(main, **on_device) as pipeline:
        plain, speculative = _texts(pipeline, 0), _texts(pipeline, TOGETHER)
        way = f"default, {pipeline.main.kv}, {_describe(TOGETHER)}"
        yield _compare(way, "plain decoding there", speculative, plain, is_promised=False)


def _options(length: int) -> dict[str, Any]:
    return {"max_new_tokens": NUM_TOKENS, "num_assistant_tokens": length, "ignore_eos": True}


def _texts(pipeline: SpeculativePipeline, length: int) -> list[GenerationResult]:
    return [pipeline.generate(prompt, **_options(length)) for prompt in PROMPTS]


def _describe(length: int) -> str:
    return f"draft length {length}" if length else "plain"


def _compare(
    way: str,
    reference: str,
    texts: Sequence[GenerationResult],
    wanted: Sequence[GenerationResult],
    *,
    is_promised: bool = True,
) -> Agreement:
    equal = [own.token_ids == other.token_ids for own, other in zip(texts, wanted, strict=True)]
    stats = [text.stats for text in texts]
    return Agreement(
        way,
        reference,
        sum(equal),
        len(texts),
        sum(own.accepted for own in stats),
        sum(own.drafted for own in stats),
        is_promised,
    )
