"""Passes of other forms: batch-invariant ones, in parts, across the border of LongRoPE."""

from tests.traces.describe import FINISH, Model, Step, add, run

NEAR = Model(drift=1.5)
PROMPT = "onceuponatime"
TWO = (
    add("a", PROMPT, max_new_tokens=8, num_assistant_tokens=2),
    Step(2),
    add("b", PROMPT[:6], max_new_tokens=5, num_assistant_tokens=0),
)
ACROSS = (
    add("a", PROMPT, max_new_tokens=16, num_assistant_tokens=3),
    add("b", PROMPT[:4], max_new_tokens=16, num_assistant_tokens=3),
)

RUNS = (
    run(
        "generated tokens by themselves, in static shapes",
        *TWO,
        main=Model(is_invariant=True, static_shapes=(2, 4)),
        draft=NEAR,
    ),
    run(
        "a prompt that goes on from an answer, and reads again what was generated",
        *TWO,
        FINISH,
        add("c", "{a}", max_new_tokens=9, num_assistant_tokens=2),
        main=Model(is_invariant=True),
        draft=NEAR,
    ),
    run(
        "passes of seven tokens at most",
        *TWO,
        main=Model(is_invariant=True, max_pass_tokens=7),
        draft=NEAR,
    ),
    run(
        "across the border of both models, paged",
        *ACROSS,
        main=Model(border=18),
        draft=Model(drift=1.5, border=16),
    ),
    run(
        "across the border, stateful",
        *ACROSS,
        main=Model("stateful", border=18),
        draft=Model("stateful", drift=1.5, border=18),
    ),
)
