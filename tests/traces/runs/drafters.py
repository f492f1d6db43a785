"""Every drafter: who proposes what, and which text it follows from."""

from tests.traces.describe import FINISH, Model, add, run

NEAR = Model(drift=1.5)
PROMPT = "onceuponatimethereonce"
REPEATS = "zzwQjbjJNKzzwQjbjJ"
CODE = "RdjOlAudjbyhtUzwQU"

OTHER_TOKENS = (
    add("a", "once upona ti m e", max_new_tokens=20, num_assistant_tokens=3),
    add("b", "WWaabbccV ddee", max_new_tokens=8, num_assistant_tokens=3),
    add("c", "a b c d e ", max_new_tokens=3, num_assistant_tokens=1),
)
"""Prompts for a draft model that has other tokens."""

RUNS = (
    run(
        "matches in the text itself",
        add("a", REPEATS, max_new_tokens=24, num_assistant_tokens=4),
        drafter="suffix",
    ),
    run(
        "matches in texts of reference",
        add(
            "a",
            "onceuponatime",
            max_new_tokens=16,
            num_assistant_tokens=5,
            reference_texts=[CODE, "nothingofinterest"],
        ),
        drafter="suffix",
    ),
    run(
        "matches in earlier outputs, of the same salt only",
        add("a", PROMPT, max_new_tokens=12, num_assistant_tokens=4),
        FINISH,
        add("b", PROMPT, max_new_tokens=12, num_assistant_tokens=4),
        add("c", PROMPT, max_new_tokens=8, num_assistant_tokens=4, cache_salt="mine"),
        FINISH,
        add("d", PROMPT, max_new_tokens=8, num_assistant_tokens=4, cache_prompt=False),
        drafter="suffix",
    ),
    run(
        "prompt lookup",
        add("a", REPEATS, max_new_tokens=20, num_assistant_tokens=4),
        drafter="prompt-lookup",
    ),
    run(
        "prompt lookup of two tokens at most, and of n-grams of one",
        add("a", REPEATS, max_new_tokens=12, prompt_lookup_num_tokens=2, num_assistant_tokens=5),
        add("b", REPEATS, max_new_tokens=12, max_matching_ngram_size=1, num_assistant_tokens=3),
        drafter="prompt-lookup",
    ),
    run(
        "matches, and a draft model where there are none",
        add("a", REPEATS, max_new_tokens=24, num_assistant_tokens=4),
        draft=NEAR,
        drafter="both",
    ),
    run(
        "both, for two prompts with other drafts",
        add("a", REPEATS, max_new_tokens=14, num_assistant_tokens=3),
        add("b", "onceupon", max_new_tokens=14, num_assistant_tokens=3, reference_texts=CODE),
        main=Model("stateful"),
        draft=NEAR,
        drafter="both",
    ),
    run(
        "a draft model with other tokens, by those that both have",
        *OTHER_TOKENS,
        draft=Model(drift=1),
        pairing="intersection",
    ),
    run(
        "a draft model with other tokens, by its text",
        *OTHER_TOKENS,
        draft=Model(drift=1),
        pairing="retokenize",
    ),
    run(
        "a draft model that sees the end of the text",
        add("a", PROMPT, max_new_tokens=28, num_assistant_tokens=3),
        draft=Model(max_length=16, drift=0.5),
    ),
    run(
        "two that a draft model sees the end of, in states",
        add("a", PROMPT, max_new_tokens=14, num_assistant_tokens=3),
        add("b", PROMPT[::-1], max_new_tokens=14, num_assistant_tokens=3),
        draft=Model("stateful", max_length=20, drift=0.5),
    ),
)
