"""KV caches that are kept: turns of a conversation, forks, salts."""

from tests.traces.describe import FINISH, Action, Model, Step, add, run

NEAR = Model(drift=1.5)
SYSTEM = "youareahelpfulassistant"


def conversation() -> tuple[Action, ...]:
    """Two turns, the second asked once more with another question."""
    return (
        add("first", SYSTEM + "hello", max_new_tokens=7, num_assistant_tokens=3),
        FINISH,
        add("second", "{first}andthen", max_new_tokens=5, num_assistant_tokens=3),
        FINISH,
        add("other", "{first}oreven", max_new_tokens=4, num_assistant_tokens=3),
    )


RUNS = (
    run("a conversation, paged", *conversation(), draft=NEAR),
    run(
        "a conversation, stateful",
        *conversation(),
        main=Model("stateful"),
        draft=Model("stateful", drift=1.5),
    ),
    run(
        "a conversation, trimmed at once",
        *conversation(),
        main=Model("stateful", max_masked=0),
        draft=Model("stateful", drift=1.5, max_masked=0),
    ),
    run(
        "salts keep conversations apart, and what is not to be kept is not",
        add("a", SYSTEM, max_new_tokens=3, cache_salt="mine"),
        FINISH,
        add("b", SYSTEM, max_new_tokens=3, cache_salt="yours"),
        FINISH,
        add("c", SYSTEM, max_new_tokens=3),
        add("d", SYSTEM, max_new_tokens=3, cache_prompt=False),
        FINISH,
        add("e", SYSTEM + "x", max_new_tokens=2, cache_salt="mine"),
    ),
    run(
        "forks that share blocks while they run, to the middle of one",
        add("a", SYSTEM + "a", max_new_tokens=12, num_assistant_tokens=2),
        Step(2),
        add("b", SYSTEM + "ab", max_new_tokens=6, num_assistant_tokens=2),
        Step(1),
        add("c", SYSTEM[:18], max_new_tokens=6, num_assistant_tokens=2),
        draft=NEAR,
    ),
    run(
        "the same prompt four times at once, with choices",
        *(
            add(f"{i}", SYSTEM, max_new_tokens=5, temperature=1.0, seed=1, choice=i % 3)
            for i in range(4)
        ),
    ),
    run(
        "forks in states: a row that others go on from",
        add("a", SYSTEM, max_new_tokens=8),
        Step(3),
        add("b", SYSTEM + "x", max_new_tokens=4),
        add("c", SYSTEM[:10], max_new_tokens=4),
        main=Model("stateful"),
    ),
)
