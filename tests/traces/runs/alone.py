"""One prompt at a time, on each kind of KV cache, with drafts that agree always to never."""

from tests.traces.describe import Model, add, run

STATEFUL, TRIMMED = Model("stateful"), Model("stateful", max_masked=0)
PROMPT = "onceuponatime"
LONG = "itwasthebestoftimesitwastheworstoftimes" * 30

RUNS = (
    run("plain, paged", add("a", PROMPT, max_new_tokens=8)),
    run("plain, stateful", add("a", PROMPT, max_new_tokens=8), main=STATEFUL),
    run(
        "three draft tokens, paged",
        add("a", PROMPT, max_new_tokens=24, num_assistant_tokens=3),
        draft=Model(drift=1.5),
    ),
    run(
        "three draft tokens, stateful, hidden entries trimmed late",
        add("a", PROMPT, max_new_tokens=30, num_assistant_tokens=3),
        main=Model("stateful", max_masked=6),
        draft=Model("stateful", drift=1.5, max_masked=4),
    ),
    run(
        "three draft tokens, stateful, trimmed at once",
        add("a", PROMPT, max_new_tokens=20, num_assistant_tokens=3),
        main=TRIMMED,
        draft=Model("stateful", drift=1.5, max_masked=0),
    ),
    run(
        "a draft that is always right, and behind by two tokens",
        add("a", PROMPT, max_new_tokens=20, num_assistant_tokens=4),
        draft=Model(),
    ),
    run(
        "a draft that is always wrong, of another KV cache",
        add("a", PROMPT, max_new_tokens=8, num_assistant_tokens=2),
        draft=Model("stateful", drift=16),
    ),
    run(
        "a long prompt read in chunks, while the blocks grow",
        add("a", LONG, max_new_tokens=6, num_assistant_tokens=2),
        main=Model(max_length=1400, block_size=16),
        draft=Model(max_length=1400, block_size=32, drift=1),
    ),
)
