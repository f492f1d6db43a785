"""The first generations of a process: `python -m tests.benchmarks.figures.fresh`.

Its arguments are main and draft model, how many generations, their tokens, and OpenVINO's
properties as JSON. It prints JSON: tokens per second of all of them, seconds to the first token of
the first one, and the memory that the process held after that one, in MiB.
"""

import json
import sys
from time import perf_counter
from typing import Any

import psutil

from ov_specdec import SpeculativePipeline
from ov_specdec.bench.prompts import CODE

MIB = 2**20


def main(model: str, draft: str, runs: int, tokens: int, properties: dict[str, str]) -> None:
    """Generate, as somebody who calls nothing else before."""
    with SpeculativePipeline(
        model, draft or None, properties=properties, profile="none"
    ) as pipeline:
        options: dict[str, Any] = {
            "max_new_tokens": tokens,
            "ignore_eos": True,
            "cache_prompt": False,
        }
        start = perf_counter()
        first = pipeline.generate(CODE[0], **options).stats
        memory = psutil.Process().memory_info().rss / MIB
        for turn in range(1, runs):
            pipeline.generate(CODE[turn % len(CODE)], **options)
        speed = runs * tokens / (perf_counter() - start)
    found = {"speed": speed, "first": first.time_to_first_token, "memory": memory}
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), json.loads(sys.argv[5]))
