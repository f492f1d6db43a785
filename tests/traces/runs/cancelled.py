"""Prompts that are cancelled or closed, and streams that run ahead of their readers."""

from tests.traces.describe import FINISH, Cancel, Close, Model, Read, Run, Step, add, stream

NEAR = Model(drift=1.5)
LONG = "itwasthebestoftimesitwastheworstoftimes"

RUNS = (
    Run(
        "cancelled while it is answered, while its prompt is read, and while it waits",
        (
            add("a", "once", max_new_tokens=10, num_assistant_tokens=2),
            add("b", "upon", max_new_tokens=10, num_assistant_tokens=2),
            Step(2),
            Cancel("a"),
            add("c", LONG, max_new_tokens=10, num_assistant_tokens=2),
            add("d", "time", max_new_tokens=10, num_assistant_tokens=2),
            Step(2),
            Cancel("c"),
            Cancel("d"),
            FINISH,
        ),
        draft=NEAR,
        drafter="model",
        max_batch_size=2,
        prefill=8,
    ),
    Run(
        "cancelled in states that others share",
        (
            add("a", "once", max_new_tokens=10),
            add("b", "uponatime", max_new_tokens=8),
            add("c", "there", max_new_tokens=6),
            Step(3),
            Cancel("b"),
            Step(1),
            add("again", "{b}", max_new_tokens=3),
            FINISH,
        ),
        main=Model("stateful"),
    ),
    Run(
        "a batch that is closed, and what is kept of it",
        (
            add("a", "onceuponatime", max_new_tokens=10, num_assistant_tokens=3),
            add("b", "therewas", max_new_tokens=10, cache_prompt=False),
            Step(3),
            Close(),
            add("c", "{a}", max_new_tokens=3),
            FINISH,
        ),
        draft=NEAR,
        drafter="model",
    ),
    Run(
        "a stream that is cancelled, and one that is closed",
        (
            stream("a", "onceuponatime", max_new_tokens=20, num_assistant_tokens=3),
            stream("b", "therewas", max_new_tokens=20, num_assistant_tokens=3),
            Read("a", 3),
            Read("b", 2),
            Cancel("a"),
            Read("a", None),
            Close("b"),
            stream("c", "once", max_new_tokens=3),
            Read("c", None),
        ),
        draft=NEAR,
        drafter="model",
    ),
)
