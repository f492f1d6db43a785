"""Passes that fail, logits that are none, and functions that raise: whom it ends, what is left."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tests.traces.describe import FINISH, Model, Step, add, run
from tests.traces.journal import ScriptedError

PROMPT = "onceuponatime"
SHORT = {"max_new_tokens": 8, "num_assistant_tokens": 2}


def breaks(tokens: Sequence[int], row: NDArray[np.float32]) -> NDArray[np.float32]:
    """Raises once a text has sixteen tokens."""
    if len(tokens) >= 16:
        raise ScriptedError("this function raises")
    return row


def ends_after_p(tokens: Sequence[int], row: NDArray[np.float32]) -> NDArray[np.float32]:
    """Lets nothing follow a p, which the main model never comes to."""
    return row if tokens[-1] != ord("p") - ord("a") else np.full_like(row, -np.inf)


RUNS = (
    run(
        "a draft that comes to a dead end",
        add("a", PROMPT, logits_processor=[ends_after_p], **SHORT),
        draft=Model(drift=1.5),
    ),
    run(
        "a draft model that fails, and is asked again",
        add("a", PROMPT, **SHORT),
        FINISH,
        add("b", PROMPT, **SHORT),
        draft=Model(drift=1.5, fails_at=(3,)),
    ),
    run(
        "a draft model that fails two of three",
        add("a", PROMPT, **SHORT),
        add("b", PROMPT[:5], **SHORT),
        add("c", PROMPT[3:], max_new_tokens=8, num_assistant_tokens=0),
        draft=Model(drift=1.5, fails_at=(2,)),
    ),
    run(
        "a main model that fails, with states that are empty then",
        add("a", PROMPT, **SHORT),
        add("b", PROMPT[:5], **SHORT),
        Step(3),
        add("c", PROMPT, **SHORT),
        main=Model("stateful", fails_at=(3,)),
        draft=Model("stateful", drift=1.5),
    ),
    run(
        "a main model that fails while it reads, and finds its blocks as they were",
        add("a", PROMPT, max_new_tokens=8),
        Step(2),
        add("b", PROMPT * 3, max_new_tokens=8),
        Step(2),
        add("c", PROMPT * 3, max_new_tokens=8),
        main=Model(fails_at=(3,)),
        prefill=12,
    ),
    run(
        "logits that are none",
        add("a", PROMPT, **SHORT),
        add("b", PROMPT[::-1], **SHORT),
        FINISH,
        add("c", PROMPT, **SHORT),
        main=Model(blank_at=(2,)),
        draft=Model(drift=1.5, blank_at=(9,)),
    ),
    run(
        "a function of a user that raises, beside others",
        add("a", PROMPT, logits_processor=[breaks], **SHORT),
        add("b", PROMPT[::-1], **SHORT),
        FINISH,
        add("c", PROMPT, **SHORT),
        draft=Model(drift=1.5),
    ),
)
