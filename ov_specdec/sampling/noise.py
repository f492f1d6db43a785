"""The noise of seeded sampling: a function of seed, position and token id alone.

The Gumbel-max trick draws the token with the greatest log-probability plus Gumbel noise. Each token
has its own noise, so a draw does not depend on earlier draws, other requests or draft tokens. A
draft model with the same noise tends to choose the same token.
Sources: Gumbel-max (Maddison et al., arXiv 1411.0030); for drafts Daliri et al. (arXiv 2408.07978).
"""

from dataclasses import dataclass
from hashlib import blake2b

import numpy as np

from ov_specdec.sampling.distribution import Distribution, Ids, Probs

NOISE_RUN = 16384
"""Tokens in one vectorized step: few enough to stay in the processor's cache."""

GAMMA, MIX_1, MIX_2 = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
"""The constants of SplitMix64."""

UINT64 = 2**64 - 1


@dataclass(frozen=True)
class Noise:
    """Noise for every token of a sequence. seed, choice: see `GenerationOptions`."""

    seed: int
    choice: int = 0

    def draw(self, distribution: Distribution, position: int) -> tuple[int, float]:
        """The token at index `position` of the sequence, and a confidence from 0 to 1.

        Never a token of probability 0. The confidence estimates how likely another model with the
        same noise is to choose the same token.
        """
        key = self._key(position)
        best, bound, chosen, total = 0.0, 0.0, 0, 0.0
        for start in range(0, len(distribution.probs), NOISE_RUN):
            probs = distribution.probs[start : start + NOISE_RUN]
            end = start + len(probs)
            ids = distribution.ids
            numbers = uniform(key, np.arange(start, end) if ids is None else ids[start:end])
            # log(prob) + Gumbel noise is greatest where prob / exponential noise is. The bound
            # prob / uniform number takes less time.
            bounds = probs / numbers
            total += float(bounds.sum())
            near = np.flatnonzero(bounds > best)
            scores = probs[near] / -np.log1p(-numbers[near])
            if scores.max(initial=0.0) > best:
                first = int(scores.argmax())
                best, bound = float(scores[first]), float(bounds[near[first]])
                chosen = start + int(near[first])
        others = max(total - bound, 0.0)
        return distribution.token(chosen), best / (best + others)

    def _key(self, position: int) -> int:
        """A 64-bit key for a position of a sequence. Source: BLAKE2b (RFC 7693)."""
        key = f"{self.seed}/{self.choice}/{position}".encode()
        return int.from_bytes(blake2b(key, digest_size=8).digest(), "little")


def uniform(key: int, ids: Ids) -> Probs:
    """A uniform number in (0, 1) for each id [n].

    key: 64 bits. The numbers are outputs `ids` of the generator SplitMix64 seeded with the key, 52
    bits of each. Source: Steele et al., "Fast splittable pseudorandom number generators" (OOPSLA
    2014).
    """
    bits = ids.astype(np.uint64)
    bits *= np.uint64(GAMMA)
    bits += np.uint64((key + GAMMA) & UINT64)
    for shift, factor in ((30, MIX_1), (27, MIX_2)):
        bits ^= bits >> np.uint64(shift)
        bits *= np.uint64(factor)
    bits ^= bits >> np.uint64(31)
    # The middles of 2**52 equal parts, which floats hold exactly.
    numbers = (bits >> np.uint64(12)).astype(np.float64)
    numbers += 0.5
    numbers *= 2.0**-52
    return numbers
