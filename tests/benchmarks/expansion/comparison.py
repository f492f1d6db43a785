"""Whether two models compute the same: their logits side by side, in exact precision."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ov_specdec.models.compile import load_model
from ov_specdec.models.runtime_config import RuntimeConfig
from ov_specdec.models.source import open_source
from ov_specdec.runner.cached_sequence import CachedSequence, alone
from ov_specdec.sampling.logits import Logits

PROMPTS = (
    'def fibonacci(n):\n    """Return the n-th Fibonacci number."""\n    a, b = 0, 1\n',
    "import argparse\nimport sys\n\n\ndef main():\n    parser = argparse.ArgumentParser()\n",
    "class Stack:\n    def __init__(self):\n        self.items = []\n\n    def push(self, item):\n",
)
TOLERANCE = 1e-5
"""What rounding may make, as a part of the largest logit.

The integers of int8 stay what they were, so only sums in f32 are rounded in another order.
"""


@dataclass(frozen=True)
class LogitsDifference:
    """How far two models' logits are apart.

    largest: the largest difference; scale: the largest logit, without its sign; positions: rows
    compared; agreeing: those whose largest logit is of the same token.
    """

    largest: float
    scale: float
    positions: int
    agreeing: int

    @property
    def is_rounding(self) -> bool:
        """Whether the difference is as small as rounding makes it."""
        return self.largest <= TOLERANCE * self.scale

    def __str__(self) -> str:
        return (
            f"largest difference of logits {self.largest:.1e} (largest logit {self.scale:.1f}), "
            f"greedy choice the same at {self.agreeing} of {self.positions} positions"
        )


def compare_logits(first: Path, second: Path) -> LogitsDifference:
    """Compare two models with the same tokenizer on a few prompts."""
    # One after the other, so that only one of them is in memory.
    a, b = (_logits(folder) for folder in (first, second))
    return LogitsDifference(
        # A difference that is not a number must not pass for a small one.
        largest=float(np.nan_to_num(np.abs(a - b), nan=np.inf).max()),
        scale=float(np.abs(a).max()),
        positions=len(a),
        agreeing=int((a.argmax(axis=-1) == b.argmax(axis=-1)).sum()),
    )


def _logits(folder: Path) -> Logits:
    """The logits [positions, vocab] of all prompts, one below the other."""
    source = open_source(folder)
    runtime = RuntimeConfig(kv="stateful", precision="exact")
    model = load_model(source, runtime).runner
    rows = []
    for prompt in PROMPTS:
        cache, ids = CachedSequence(model), source.tokenizer.encode(prompt)
        rows.append(alone(cache.advance(ids, num_rows=len(ids))).logits.copy())
        cache.discard()
    return np.concatenate(rows)
