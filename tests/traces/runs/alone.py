"""One prompt at a time, on each kind of KV cache, with drafts that agree always to never."""

from tests.traces.describe import FINISH, Model, Run, add

STATEFUL, TRIMMED = Model("stateful"), Model("stateful", max_masked=0)
PROMPT = "onceuponatime"
LONG = "itwasthebestoftimesitwastheworstoftimes" * 30

RUNS = (
    Run("plain, paged", (add("a", PROMPT, max_new_tokens=8), FINISH)),
    Run("plain, stateful", (add("a", PROMPT, max_new_tokens=8), FINISH), main=STATEFUL),
    Run(
        "three draft tokens, paged",
        (add("a", PROMPT, max_new_tokens=24, num_assistant_tokens=3), FINISH),
        draft=Model(drift=1.5),
        drafter="model",
    ),
    Run(
        "three draft tokens, stateful, hidden entries trimmed late",
        (add("a", PROMPT, max_new_tokens=30, num_assistant_tokens=3), FINISH),
        main=Model("stateful", max_masked=6),
        draft=Model("stateful", drift=1.5, max_masked=4),
        drafter="model",
    ),
    Run(
        "three draft tokens, stateful, trimmed at once",
        (add("a", PROMPT, max_new_tokens=20, num_assistant_tokens=3), FINISH),
        main=TRIMMED,
        draft=Model("stateful", drift=1.5, max_masked=0),
        drafter="model",
    ),
    Run(
        "a draft that is always right, and behind by two tokens",
        (add("a", PROMPT, max_new_tokens=20, num_assistant_tokens=4), FINISH),
        draft=Model(),
        drafter="model",
    ),
    Run(
        "a draft that is always wrong, of another KV cache",
        (add("a", PROMPT, max_new_tokens=8, num_assistant_tokens=2), FINISH),
        draft=Model("stateful", drift=16),
        drafter="model",
    ),
    Run(
        "a long prompt read in chunks, while the blocks grow",
        (add("a", LONG, max_new_tokens=6, num_assistant_tokens=2), FINISH),
        main=Model(max_length=1400, block_size=16),
        draft=Model(max_length=1400, block_size=32, drift=1),
        drafter="model",
    ),
)
