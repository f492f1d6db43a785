"""The chunks of a made-up generation, and what the demo makes of them."""

from ov_specdec.demo.comparison import Run
from ov_specdec.results.chunks import Chunk
from ov_specdec.results.stats import GenerationStats, RoundStats

CHUNKS = [
    Chunk("a", [1], "plain"),
    Chunk("bc", [2, 3], "draft"),
    Chunk("d", [4], "correction", [8, 9]),
    Chunk("e", [5], "draft"),
    Chunk("<f>", [6], "bonus", [], "length", GenerationStats(3, [RoundStats(*[1] * 7)])),
]
CANCELLED = [*CHUNKS[:2], Chunk("", [], "plain", [], "cancelled", GenerationStats(3))]


def spell(ids):
    return "".join(chr(ord("a") + token - 1) for token in ids)


def followed(chunks=CHUNKS):
    run = Run()
    for _ in run.follow(chunk for chunk in chunks):
        pass
    return run
