"""How tokens are chosen: drawn, with seeds, after processors; and what is told of them."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tests.traces.describe import FINISH, Model, add, run

NEAR = Model(drift=1.5)
PROMPT = "onceuponatime"
SHORT = {"max_new_tokens": 14, "num_assistant_tokens": 3}


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
        drafter="both",
    ),
    run(
        "drawn from warped distributions, two at a time",
        add("a", PROMPT, top_k=5, temperature=1.3, **SHORT),
        add("b", PROMPT, top_p=0.7, min_p=0.05, typical_p=0.9, **SHORT),
        draft=NEAR,
    ),
    run(
        "drawn with seeds: the same text with any draft",
        add("a", PROMPT, temperature=0.9, seed=11, **SHORT),
        FINISH,
        add("b", PROMPT, temperature=0.9, seed=11, max_new_tokens=14, num_assistant_tokens=0),
        FINISH,
        add("c", PROMPT, temperature=0.9, seed=12, choice=2, max_new_tokens=14),
        draft=NEAR,
    ),
    run(
        "penalties and n-grams",
        add("a", PROMPT, repetition_penalty=1.3, **SHORT),
        add("b", PROMPT, presence_penalty=1.5, frequency_penalty=0.5, **SHORT),
        add("c", PROMPT, no_repeat_ngram_size=2, encoder_no_repeat_ngram_size=2, **SHORT),
        draft=NEAR,
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
        add("a", PROMPT, logprobs=2, max_new_tokens=5, num_assistant_tokens=2),
        add(
            "b",
            PROMPT,
            logprobs=1,
            logprobs_mode="processed_logprobs",
            repetition_penalty=1.5,
            max_new_tokens=5,
            num_assistant_tokens=2,
        ),
        draft=NEAR,
    ),
    run(
        "log-probabilities of a prompt, read again where it is kept",
        add("a", PROMPT * 6, prompt_logprobs=0, max_new_tokens=2),
        FINISH,
        add("b", PROMPT, prompt_logprobs=1, logprobs=0, max_new_tokens=2),
    ),
)
