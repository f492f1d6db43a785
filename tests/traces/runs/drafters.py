"""Every drafter: who proposes what, and which text it follows from."""

from tests.traces.describe import FINISH, Model, Run, add

NEAR = Model(drift=1.5)
PROMPT = "onceuponatimethereonce"
REPEATS = "zzwQjbjJNKzzwQjbjJ"
CODE = "RdjOlAudjbyhtUzwQU"

OTHER_TOKENS = (
    add("a", "once upona ti m e", max_new_tokens=20, num_assistant_tokens=3),
    add("b", "WWaabbccV ddee", max_new_tokens=8, num_assistant_tokens=3),
    add("c", "a b c d e ", max_new_tokens=3, num_assistant_tokens=1),
    FINISH,
)
"""Prompts for a draft model that has other tokens."""

RUNS = (
    Run(
        "matches in the text itself",
        (add("a", REPEATS, max_new_tokens=24, num_assistant_tokens=4), FINISH),
        drafter="suffix",
    ),
    Run(
        "matches in texts of reference",
        (
            add(
                "a",
                "onceuponatime",
                max_new_tokens=16,
                num_assistant_tokens=5,
                reference_texts=[CODE, "nothingofinterest"],
            ),
            FINISH,
        ),
        drafter="suffix",
    ),
    Run(
        "matches in earlier outputs, of the same salt only",
        (
            add("a", PROMPT, max_new_tokens=12, num_assistant_tokens=4),
            FINISH,
            add("b", PROMPT, max_new_tokens=12, num_assistant_tokens=4),
            add("c", PROMPT, max_new_tokens=8, num_assistant_tokens=4, cache_salt="mine"),
            FINISH,
            add("d", PROMPT, max_new_tokens=8, num_assistant_tokens=4, cache_prompt=False),
            FINISH,
        ),
        drafter="suffix",
    ),
    Run(
        "prompt lookup",
        (add("a", REPEATS, max_new_tokens=20, num_assistant_tokens=4), FINISH),
        drafter="prompt-lookup",
    ),
    Run(
        "prompt lookup of two tokens at most, and of n-grams of one",
        (
            add(
                "a",
                REPEATS,
                max_new_tokens=12,
                prompt_lookup_num_tokens=2,
                num_assistant_tokens=5,
            ),
            add(
                "b",
                REPEATS,
                max_new_tokens=12,
                max_matching_ngram_size=1,
                num_assistant_tokens=3,
            ),
            FINISH,
        ),
        drafter="prompt-lookup",
    ),
    Run(
        "matches, and a draft model where there are none",
        (add("a", REPEATS, max_new_tokens=24, num_assistant_tokens=4), FINISH),
        draft=NEAR,
        drafter="both",
    ),
    Run(
        "both, for two prompts with other drafts",
        (
            add("a", REPEATS, max_new_tokens=14, num_assistant_tokens=3),
            add("b", "onceupon", max_new_tokens=14, num_assistant_tokens=3, reference_texts=CODE),
            FINISH,
        ),
        main=Model("stateful"),
        draft=NEAR,
        drafter="both",
    ),
    Run(
        "a draft model with other tokens, by those that both have",
        OTHER_TOKENS,
        draft=Model(drift=1),
        drafter="model",
        pairing="intersection",
    ),
    Run(
        "a draft model with other tokens, by its text",
        OTHER_TOKENS,
        draft=Model(drift=1),
        drafter="model",
        pairing="retokenize",
    ),
    Run(
        "a draft model that sees the end of the text",
        (add("a", PROMPT, max_new_tokens=28, num_assistant_tokens=3), FINISH),
        draft=Model(max_length=16, drift=0.5),
        drafter="model",
    ),
    Run(
        "two that a draft model sees the end of, in states",
        (
            add("a", PROMPT, max_new_tokens=14, num_assistant_tokens=3),
            add("b", PROMPT[::-1], max_new_tokens=14, num_assistant_tokens=3),
            FINISH,
        ),
        draft=Model("stateful", max_length=20, drift=0.5),
        drafter="model",
    ),
)
