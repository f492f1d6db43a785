"""How tokens are drawn and verified, and what is told of them: sampling, scores, choices."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tests.traces.describe import FINISH, add, run
from tests.traces.runs.drafts import MATCHES_FIRST, NEAR, PROMPT
from tests.traces.runs.sharing import SYSTEM

SHORT = {"max_new_tokens": 14, "num_assistant_tokens": 3}
SCORED = {"max_new_tokens": 5, "num_assistant_tokens": 2}
PROCESSED = {"logprobs_mode": "processed_logprobs"}


def no_capitals(tokens: Sequence[int], row: NDArray[np.float32]) -> NDArray[np.float32]:
    """Forbids the letters from A on."""
    row[26:] = -np.inf
    return row


def only_next(tokens: Sequence[int], row: NDArray[np.float32]) -> NDArray[np.float32]:
    """Favours the letter after the last one."""
    row[(tokens[-1] + 1) % len(row)] += 6
    return row


RUNS = (
    run(
        "drawn, verified as blocks",
        add("a", PROMPT, do_sample=True, temperature=0.9, **SHORT),
        draft=NEAR,
    ),
    run(
        "drawn, verified one by one, of greedy drafts and of matches",
        add("a", PROMPT, do_sample=True, assistant_do_sample=False, **SHORT),
        FINISH,
        add("b", PROMPT * 2, top_k=3, temperature=0.6, **SHORT),
        draft=NEAR,
        drafter=MATCHES_FIRST,
    ),
    run(
        "tokens and words that are forbidden, and functions of a user",
        add("a", PROMPT, suppress_tokens=[3, 9], bad_words_ids=[[14, 11]], **SHORT),
        add("b", PROMPT, logit_bias={4: 9.0, 20: float("-inf")}, **SHORT),
        add("c", PROMPT, logits_processor=[no_capitals, only_next], **SHORT),
        draft=NEAR,
    ),
    run(
        "log-probabilities, before and after processors",
        add("a", PROMPT, logprobs=2, **SCORED),
        add("b", PROMPT, logprobs=1, repetition_penalty=1.5, **PROCESSED, **SCORED),
        draft=NEAR,
    ),
    run(
        "log-probabilities of a prompt, read again where it is kept",
        add("a", PROMPT * 6, prompt_logprobs=0, max_new_tokens=2),
        FINISH,
        add("b", PROMPT, prompt_logprobs=1, logprobs=0, max_new_tokens=2),
    ),
    run(
        "the same prompt four times at once, with choices",
        *(
            add(f"{i}", SYSTEM, max_new_tokens=5, temperature=1.0, seed=1, choice=i % 3)
            for i in range(4)
        ),
    ),
)
