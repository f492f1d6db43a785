"""Where outputs end: tokens, texts, numbers and the context."""

from tests.traces.describe import FINISH, Model, add, run

PROMPT = "onceuponatime"
EXACT, NEAR = Model(), Model(drift=1.5)

RUNS = (
    run(
        "an end-of-sequence token, in the middle of a draft and drafted",
        add("middle", PROMPT, eos_token_id=[7], num_assistant_tokens=6),
        FINISH,
        add("drafted", PROMPT, eos_token_id=[46], num_assistant_tokens=6, cache_prompt=False),
        draft=EXACT,
    ),
    run(
        "no end before so many tokens, and none at all",
        add("later", PROMPT, eos_token_id=9, min_new_tokens=6, num_assistant_tokens=3),
        add("never", PROMPT, ignore_eos=True, max_new_tokens=7, num_assistant_tokens=3),
        draft=NEAR,
    ),
    run(
        "a stop string across two rounds, and one that begins and does not go on",
        add("a", PROMPT, stop_strings=["jO", "dz"], num_assistant_tokens=2),
        FINISH,
        add("b", PROMPT, stop_strings="djOlAx", max_new_tokens=8, num_assistant_tokens=2),
        draft=NEAR,
    ),
    run(
        "a stop string within accepted tokens, on a prompt that is asked again",
        add("a", PROMPT, stop_strings=["lA"], num_assistant_tokens=6),
        FINISH,
        add("again", "{a}", max_new_tokens=4, num_assistant_tokens=6),
        draft=EXACT,
    ),
    run(
        "so many tokens and no more, one of them at least",
        add("one", PROMPT, max_new_tokens=1, num_assistant_tokens=4),
        add("two", PROMPT[1:], max_new_tokens=2, num_assistant_tokens=4),
        add("six", PROMPT[2:], max_new_tokens=6, num_assistant_tokens=4),
        draft=EXACT,
    ),
    run(
        "an end-of-sequence token in the middle of a match",
        add("a", "htUzwhtUzwht", eos_token_id=25, num_assistant_tokens=6),
        drafter="suffix",
    ),
    run(
        "the end of the context",
        add("a", PROMPT, max_new_tokens=None, num_assistant_tokens=4),
        main=Model(max_length=30),
        draft=Model(max_length=30),
    ),
)
