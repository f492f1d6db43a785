"""Encoder-decoder models: the prompt is what the encoder reads."""

from tests.traces.describe import FINISH, Model, add, run

MAIN = Model("encoder-decoder")
PROMPT = "onceuponatime"

RUNS = (
    run(
        "one after the other, of one source and of another",
        add("a", PROMPT, max_new_tokens=6),
        add("b", PROMPT, max_new_tokens=9),
        add("c", PROMPT[::-1], max_new_tokens=4),
        main=MAIN,
    ),
    run(
        "a draft model, and a first token that is forced",
        add("a", PROMPT, max_new_tokens=14, num_assistant_tokens=3, forced_bos_token_id=20),
        FINISH,
        add("b", PROMPT, max_new_tokens=6, num_assistant_tokens=2, cache_prompt=False),
        main=MAIN,
        draft=Model("encoder-decoder", drift=1.5),
    ),
    run(
        "matches in the source",
        add("a", "Wsynifpvwkgjzc", max_new_tokens=14, num_assistant_tokens=3),
        main=MAIN,
        drafter="suffix",
    ),
    run(
        "a decoder that fails",
        add("a", PROMPT, max_new_tokens=6),
        FINISH,
        add("b", PROMPT, max_new_tokens=4),
        main=Model("encoder-decoder", fails_at=(2,)),
    ),
)
