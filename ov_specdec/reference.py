"""The algorithm in one function: what the engine does, without caches, batches and planning.

A draft model proposes tokens, the main model scores all of them in one forward pass, and a prefix
is accepted so that the output follows the main model's distribution. The engine verifies drawn
drafts as a block (arXiv 2403.10444), which accepts no fewer tokens.
Sources: Leviathan et al., algorithm 1 (arXiv 2211.17192); Chen et al., algorithm 2
(arXiv 2302.01318).
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Model = Callable[[Sequence[int]], NDArray[np.float64]]
"""From tokens to the probabilities [vocab] of the next one; one-hot in greedy decoding."""


def speculative_decode(
    main: Model,
    draft: Model,
    prompt: Sequence[int],
    draft_length: int,
    max_length: int,
    random: np.random.Generator,
) -> tuple[list[int], list[int]]:
    """Prompt and output, `max_length` tokens in all, and the number of accepted tokens by round."""
    tokens, accepted = list(prompt), list[int]()
    while len(tokens) < max_length:
        # Propose. p, q: of main and draft, as in Leviathan et al.; Chen et al. swap them.
        # The last token of a round is the main model's own, so it needs no draft token.
        drafted, q = list[int](), list[NDArray[np.float64]]()
        for _ in range(min(draft_length, max_length - len(tokens) - 1)):
            q.append(draft([*tokens, *drafted]))
            drafted.append(int(random.choice(len(q[-1]), p=q[-1])))
        # Verify. A real model computes these rows in one forward pass.
        p = [main([*tokens, *drafted[:i]]) for i in range(len(drafted) + 1)]
        n = 0
        while n < len(drafted) and random.random() < p[n][drafted[n]] / q[n][drafted[n]]:
            n += 1
        # The next token corrects the first rejected one, or follows if all were accepted.
        rest = np.maximum(p[n] - q[n], 0.0) if n < len(drafted) else p[n]
        tokens += [*drafted[:n], int(random.choice(len(rest), p=rest / rest.sum()))]
        accepted.append(n)
    return tokens, accepted
