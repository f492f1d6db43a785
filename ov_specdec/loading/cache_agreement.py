"""Compares logits on the paged and the stateful KV cache, across windows and borders."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ov_specdec.cache.longrope import Beyond
from ov_specdec.errors import ModelError
from ov_specdec.invariance import text
from ov_specdec.loading.attention import chunks, windows
from ov_specdec.loading.compile import load_model
from ov_specdec.loading.folder import ModelFolder
from ov_specdec.loading.runtime_config import Backend, RuntimeConfig
from ov_specdec.loading.source import ModelSource, open_source
from ov_specdec.logits import Logits
from ov_specdec.pass_agreement import distance
from ov_specdec.runner.base import Runner, Span

SHORT = 32
"""Tokens of the first comparison, of models with windows and without."""

LONGEST = 8192
"""Maximum tokens to prefill: a minute for a billion parameters on two cores."""

AROUND = 8
"""Compared tokens around each place, half of them beyond it."""


TOLERANCE = 0.01
"""Maximum distance of two rows in f32 by rounding after thousands of tokens."""


@dataclass(frozen=True)
class CacheAgreement:
    """The largest distance of logits between both KV caches, by place.

    not_paged: why the model has no paged cache; "" if it has one.
    """

    distances: dict[int, float]
    not_paged: str = ""

    @property
    def is_broken(self) -> bool:
        """Whether logits differ by more than rounding."""
        return any(found > TOLERANCE for found in self.distances.values())

    def __str__(self) -> str:
        if self.not_paged:
            return f"stateful only ({self.not_paged})"
        shown = ", ".join(f"{found:.4f} at {place}" for place, found in self.distances.items())
        verdict = "DIFFER" if self.is_broken else "agree"
        return f"paged and stateful {verdict} (distance of logits: {shown} tokens)"


def compare_caches(folder: ModelFolder) -> CacheAgreement:
    """Prefill the same text on both KV caches of a decoder, past each of its windows, in f32.

    Raises errors of loading.
    """
    source = open_source(folder.path)
    found = _places(source)
    stateful = list(_rows(source, "stateful", found))
    try:
        paged = list(_rows(open_source(folder.path), "paged", found))
    except ModelError as error:
        return CacheAgreement({}, str(error))
    pairs = zip(found, paged, stateful, strict=True)
    return CacheAgreement({place: max(map(distance, a, b)) for place, a, b in pairs})


def _places(source: ModelSource) -> list[int]:
    """The ends of windows, chunks and borders within the context, and an early place."""
    folder, model = source.folder, source.model
    sizes = {folder.sliding_window, folder.chunk, folder.border, *windows(model), *chunks(model)}
    most = min(folder.context_length, LONGEST) - AROUND
    return sorted({min(SHORT, most), *(size for size in sizes if size and size <= most)})


def _rows(source: ModelSource, kv: Backend, places: Sequence[int]) -> Iterator[Logits]:
    """Logits of the tokens around each place, in usual passes."""
    config = RuntimeConfig(kv=kv, precision="exact")
    runner = load_model(source, config, vocab_size=source.vocab_size).runner
    for place in places:
        yield _around(runner, place)


def _around(runner: Runner, place: int) -> Logits:
    """Logits [AROUND, vocab] of the tokens around a place, half of them one by one."""
    begin, end = place - AROUND // 2, place + AROUND // 2
    is_beyond = runner.border is not None and end > runner.border
    slot = runner.open(Beyond(object()) if is_beyond else object())
    try:
        runner.forward([Span(slot, text(0, begin), 1)])
        spans = [text(begin, place), *([token] for token in text(place, end))]
        return np.concatenate(
            [runner.forward([Span(slot, ids, len(ids))])[0].copy() for ids in spans]
        )
    finally:
        runner.free(slot)
