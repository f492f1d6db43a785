"""KV caches that are too small for all: who waits, who gives its blocks back, what is given up."""

from tests.traces.describe import FINISH, Action, Cancel, Model, Step, add, run

SMALL = Model(max_length=128, memory=128)
TIGHT = Model(max_length=128, memory=144)
TEXT = "therewasakingwhohadadaughterandsheaskedhimforaring"
TEXTS = {name: name + TEXT[i : i + 40] for i, name in enumerate("abcde")}


def prompts(names: str, **options: int) -> tuple[Action, ...]:
    return tuple(add(name, TEXTS[name], **options) for name in names)


RUNS = (
    run(
        "three of four prompts, of which the last gives its blocks back",
        *prompts("abcd", max_new_tokens=10),
        main=TIGHT,
        max_batch_size=3,
    ),
    run(
        "generated tokens by themselves, which are computed again after a preemption",
        *prompts("abc", max_new_tokens=10, num_assistant_tokens=3),
        main=Model(max_length=128, memory=144, is_invariant=True),
        draft=Model(drift=1.5),
        max_batch_size=3,
        prefill=9,
    ),
    run(
        "a draft model without room, and requests that are preempted while they draft",
        *prompts("abc", max_new_tokens=10, num_assistant_tokens=4),
        main=Model(max_length=512),
        draft=Model(max_length=128, memory=128, drift=1.5),
    ),
    run(
        "both models without room, while prompts are read in chunks",
        *prompts("a", max_new_tokens=8, num_assistant_tokens=3),
        Step(2),
        *prompts("bcd", max_new_tokens=8, num_assistant_tokens=3),
        main=Model(max_length=128, memory=192),
        draft=Model(max_length=128, memory=160, drift=1.5),
        prefill=12,
    ),
    run(
        "a prompt that waits until there is room for it",
        *prompts("a", max_new_tokens=12),
        Step(2),
        *prompts("b", max_new_tokens=4),
        main=SMALL,
    ),
    run(
        "what is kept is given up, the least recently used first",
        *prompts("a", max_new_tokens=4),
        FINISH,
        *prompts("b", max_new_tokens=4),
        FINISH,
        *prompts("a", max_new_tokens=4),
        FINISH,
        *prompts("c", max_new_tokens=4),
        FINISH,
        *prompts("b", max_new_tokens=2),
        FINISH,
        *prompts("a", max_new_tokens=2),
        main=SMALL,
    ),
    run(
        "a prompt that is cancelled after it was preempted, and one that takes its place",
        *prompts("abc", max_new_tokens=12),
        Step(7),
        Cancel("c"),
        *prompts("d", max_new_tokens=2),
        main=TIGHT,
    ),
    run(
        "one that outgrows the blocks of a draft model beside it",
        add("a", TEXT, max_new_tokens=30, num_assistant_tokens=3),
        add("b", TEXT[20:], max_new_tokens=30, num_assistant_tokens=5),
        main=Model(max_length=128),
        draft=Model(max_length=96, memory=96, drift=1),
    ),
)
