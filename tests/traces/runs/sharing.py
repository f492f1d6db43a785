"""Who shares passes and blocks: prefill beside answers, preemption, kept caches, failures."""

from tests.traces.describe import FINISH, Action, Cancel, Model, Step, add, run
from tests.traces.runs.drafts import ALMOST, CURVE, LONGER, NEAR, PROMPT

TEXTS = ("once", "uponatime", "therewasaking")
LONG = "itwasthebestoftimesitwastheworstoftimes" * 2
SYSTEM = "youareahelpfulassistant"
TALE = "therewasakingwhohadadaughterandsheaskedhimforaring"
TALES = {name: name + TALE[i : i + 40] for i, name in enumerate("abcd")}


def tales(names: str, **options: int) -> tuple[Action, ...]:
    """Prompts that need many blocks."""
    return tuple(add(name, TALES[name], **options) for name in names)


RUNS = (
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
        *(add(text[0], text, max_new_tokens=9, num_assistant_tokens=3) for text in TEXTS),
        main=Model("stateful"),
        draft=Model("stateful", drift=1.5),
    ),
    run(
        "adaptive, one budget for four sequences",
        *(add(f"{i}", LONGER[i:] + "x" * i, max_new_tokens=14) for i in range(4)),
        draft=ALMOST,
        curve=CURVE,
    ),
    run(
        "generated tokens by themselves, which are computed again after a preemption",
        *tales("abc", max_new_tokens=10, num_assistant_tokens=3),
        main=Model(memory=144, is_invariant=True),
        draft=NEAR,
        max_batch_size=3,
        prefill=9,
    ),
    run(
        "both models without room, while prompts are read in chunks",
        *tales("a", max_new_tokens=8, num_assistant_tokens=3),
        Step(2),
        *tales("bcd", max_new_tokens=8, num_assistant_tokens=3),
        main=Model(memory=192),
        draft=Model(memory=160, drift=1.5),
        prefill=12,
    ),
    run(
        "what is kept is given up, the least recently used first",
        *tales("a", max_new_tokens=4),
        FINISH,
        *tales("b", max_new_tokens=4),
        FINISH,
        *tales("a", max_new_tokens=4),
        FINISH,
        *tales("c", max_new_tokens=4),
        FINISH,
        *tales("b", max_new_tokens=2),
        FINISH,
        *tales("a", max_new_tokens=2),
        main=Model(memory=128),
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
        "a conversation, stateful",
        add("first", SYSTEM + "hello", max_new_tokens=7, num_assistant_tokens=3),
        FINISH,
        add("second", "{first}andthen", max_new_tokens=5, num_assistant_tokens=3),
        FINISH,
        add("other", "{first}oreven", max_new_tokens=4, num_assistant_tokens=3),
        main=Model("stateful"),
        draft=Model("stateful", drift=1.5),
    ),
    run(
        "cancelled while it is answered, while its prompt is read, and while it waits",
        add("a", "once", max_new_tokens=10, num_assistant_tokens=2),
        add("b", "upon", max_new_tokens=10, num_assistant_tokens=2),
        Step(2),
        Cancel("a"),
        add("c", LONG[:39], max_new_tokens=10, num_assistant_tokens=2),
        add("d", "time", max_new_tokens=10, num_assistant_tokens=2),
        Step(2),
        Cancel("c"),
        Cancel("d"),
        draft=NEAR,
        max_batch_size=2,
        prefill=8,
    ),
    run(
        "a main model that fails while it reads, and finds its blocks as they were",
        add("a", PROMPT, max_new_tokens=8),
        Step(2),
        add("b", PROMPT * 3, max_new_tokens=8),
        Step(2),
        add("c", PROMPT * 3, max_new_tokens=8),
        main=Model(fails_at=(3,)),
        prefill=12,
    ),
)
