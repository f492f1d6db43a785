"""For which numbers of tokens a model is compiled once more."""

from collections.abc import Sequence
from typing import Literal

from ov_specdec.checks import shorten
from ov_specdec.errors import OptionError

StaticShapes = Sequence[int] | Literal["auto", "none"]
"""Numbers of tokens in a pass for which a paged main model is compiled once more.

OpenVINO prepares a model anew for each pass with another number of tokens than the last one had;
a static shape, compiled for that number, has nothing to prepare, and is faster by itself. Static
shapes take time to load, and memory. "auto" takes the most useful ones, as far as `WEIGHTS`
allows, and none on a stateful KV cache, where numbers are an error. With either, a paged draft
model has those that "auto" takes too. "none": neither model has any.
"""

MAX_STATIC_SHAPE = 512

MAIN_SIZES = (1, 4, 12, 8, 16, 2)
"""Passes of a main model, the most useful first: plain decoding, then short and long drafts.

Embedded pair, default draft length, relative to length 12 without any: 0.88 without any, 0.94
with 1, 8, 4, 16; 1.04 with these; 1.08 (0.99 to 1.19) with 3 and 6 too, which take two seconds more
to load.
"""

BATCH_SIZES = (24, 32, 48, 64)
"""Of passes over several sequences, after those.

Eight requests on the embedded pair, 32 in all: 2 draft tokens each are 1.05 times as fast as plain
decoding without these, and 1.11 with them. They take 2 s more to load, and 200 MB.
"""

DRAFT_SIZES = (1, 2, 4, 8, 16, 3)
"""Of a draft model: a draft token of one sequence, or two tokens after a draft of which all was
accepted; a draft token of each of several. The larger ones take a second to load, and bring 10 % at
four requests and 6 % at sixteen.
"""

WEIGHTS = 512 * 2**20
"""Bytes of weights that they may take. Each takes what the model file has, up to twice of it."""


def choose_sizes(wanted: StaticShapes, useful: Sequence[int], num_bytes: int) -> tuple[int, ...]:
    """The static shapes of one model. useful: for "auto". num_bytes: of its weights."""
    if wanted == "none":
        return ()
    if wanted == "auto":
        return tuple(useful[: WEIGHTS // max(num_bytes, 1)])
    return tuple(wanted)


def sizes_of_models(
    wanted: StaticShapes, num_bytes: Sequence[int], max_batch_size: int
) -> list[tuple[int, ...]]:
    """The static shapes of a main model, and of a draft model where there is one.

    num_bytes: of the weights of each. max_batch_size: sequences that share passes, at most.
    """
    drafts: StaticShapes = "none" if wanted == "none" else "auto"
    main_sizes = (*MAIN_SIZES, *BATCH_SIZES) if max_batch_size > 1 else MAIN_SIZES
    kinds = ((wanted, main_sizes), (drafts, DRAFT_SIZES))
    return [choose_sizes(*kind, size) for kind, size in zip(kinds, num_bytes, strict=False)]


def check_sizes(given: object) -> StaticShapes:
    """What was given, if it is of that kind; else raises `OptionError`."""
    if given == "auto" or given == "none":
        return given
    sizes = list(given) if isinstance(given, Sequence) and not isinstance(given, str) else []
    if not sizes or not all(type(n) is int and 1 <= n <= MAX_STATIC_SHAPE for n in sizes):
        raise OptionError(
            f"static_shapes={shorten(given)} must be 'auto', 'none', or numbers of tokens from "
            f"1 to {MAX_STATIC_SHAPE}"
        )
    return sizes
