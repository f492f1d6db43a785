"""Several prompts at a time: who shares passes, who waits, and how prompts are read beside."""

from tests.traces.describe import Model, Step, add, run

NEAR = Model(drift=1.5)
TEXTS = ("once", "uponatime", "therewasaking", "whohadadaughter", "and", "sheaskedhim")
LONG = "itwasthebestoftimesitwastheworstoftimes" * 2

RUNS = (
    run(
        "two prompts",
        *(add(text[0], text, max_new_tokens=12, num_assistant_tokens=3) for text in TEXTS[:2]),
        draft=NEAR,
    ),
    run(
        "four prompts with options of their own",
        add("a", TEXTS[0], max_new_tokens=10, num_assistant_tokens=4),
        add("b", TEXTS[1], max_new_tokens=6, num_assistant_tokens=0),
        add("c", TEXTS[2], max_new_tokens=8, num_assistant_tokens=1, repetition_penalty=1.5),
        add("d", TEXTS[3], max_new_tokens=8, temperature=0.7, seed=5, num_assistant_tokens=2),
        draft=NEAR,
    ),
    run(
        "eight prompts, three at a time",
        *(add(f"{i}", TEXTS[i % 6] * (1 + i // 6), max_new_tokens=3 + i % 3) for i in range(8)),
        max_batch_size=3,
    ),
    run(
        "prompts that come while others are answered, read in chunks",
        add("a", TEXTS[0], max_new_tokens=20, num_assistant_tokens=2),
        Step(2),
        add("b", LONG, max_new_tokens=5, num_assistant_tokens=2),
        Step(1),
        add("c", LONG[::-1], max_new_tokens=4, num_assistant_tokens=2),
        main=Model(max_length=256),
        draft=Model(max_length=256, drift=1.5),
        prefill=16,
    ),
    run(
        "prompts read in the usual chunks",
        add("a", TEXTS[0], max_new_tokens=6),
        Step(1),
        add("b", LONG * 2, max_new_tokens=3),
        main=Model(max_length=256),
    ),
    run(
        "four prompts, stateful: read apart, answered together, rows come and go",
        add("a", TEXTS[0], max_new_tokens=12),
        add("b", TEXTS[1], max_new_tokens=4),
        add("c", LONG, max_new_tokens=6),
        Step(3),
        add("d", TEXTS[2], max_new_tokens=5),
        main=Model("stateful", max_masked=8),
    ),
    run(
        "three prompts with a draft, stateful",
        *(add(text[0], text, max_new_tokens=9, num_assistant_tokens=3) for text in TEXTS[:3]),
        main=Model("stateful"),
        draft=Model("stateful", drift=1.5),
    ),
    run(
        "three prompts, one after the other, where states are trimmed at once",
        *(add(text[0], text, max_new_tokens=5, num_assistant_tokens=2) for text in TEXTS[:3]),
        main=Model("stateful", max_masked=0),
        draft=Model(drift=1.5),
    ),
)
