"""Encoder-decoder models: the prompt is what the encoder reads."""

from tests.traces.describe import FINISH, Model, Run, add

MAIN = Model("encoder-decoder")
PROMPT = "onceuponatime"

RUNS = (
    Run(
        "one after the other, of one source and of another",
        (
            add("a", PROMPT, max_new_tokens=6),
            add("b", PROMPT, max_new_tokens=9),
            add("c", PROMPT[::-1], max_new_tokens=4),
            FINISH,
        ),
        main=MAIN,
    ),
    Run(
        "a draft model, and a first token that is forced",
        (
            add("a", PROMPT, max_new_tokens=14, num_assistant_tokens=3, forced_bos_token_id=20),
            FINISH,
            add("b", PROMPT, max_new_tokens=6, num_assistant_tokens=2, cache_prompt=False),
            FINISH,
        ),
        main=MAIN,
        draft=Model("encoder-decoder", drift=1.5),
        drafter="model",
    ),
    Run(
        "matches in the source",
        (
            add("a", "Wsynifpvwkgjzc", max_new_tokens=14, num_assistant_tokens=3),
            FINISH,
        ),
        main=MAIN,
        drafter="suffix",
    ),
    Run(
        "a decoder that fails",
        (
            add("a", PROMPT, max_new_tokens=6),
            FINISH,
            add("b", PROMPT, max_new_tokens=4),
            FINISH,
        ),
        main=Model("encoder-decoder", fails_at=(2,)),
    ),
)
