"""Prompts that are cancelled or closed, and streams that run ahead of their readers."""

from tests.traces.describe import Cancel, Close, Model, Read, Step, add, run, stream

NEAR = Model(drift=1.5)
LONG = "itwasthebestoftimesitwastheworstoftimes"

RUNS = (
    run(
        "cancelled while it is answered, while its prompt is read, and while it waits",
        add("a", "once", max_new_tokens=10, num_assistant_tokens=2),
        add("b", "upon", max_new_tokens=10, num_assistant_tokens=2),
        Step(2),
        Cancel("a"),
        add("c", LONG, max_new_tokens=10, num_assistant_tokens=2),
        add("d", "time", max_new_tokens=10, num_assistant_tokens=2),
        Step(2),
        Cancel("c"),
        Cancel("d"),
        draft=NEAR,
        max_batch_size=2,
        prefill=8,
    ),
    run(
        "cancelled in states that others share",
        add("a", "once", max_new_tokens=10),
        add("b", "uponatime", max_new_tokens=8),
        add("c", "there", max_new_tokens=6),
        Step(3),
        Cancel("b"),
        Step(1),
        add("again", "{b}", max_new_tokens=3),
        main=Model("stateful"),
    ),
    run(
        "a batch that is closed, and what is kept of it",
        add("a", "onceuponatime", max_new_tokens=10, num_assistant_tokens=3),
        add("b", "therewas", max_new_tokens=10, cache_prompt=False),
        Step(3),
        Close(),
        add("c", "{a}", max_new_tokens=3),
        draft=NEAR,
    ),
    run(
        "a stream that is cancelled, and one that is closed",
        stream("a", "onceuponatime", max_new_tokens=20, num_assistant_tokens=3),
        stream("b", "therewas", max_new_tokens=20, num_assistant_tokens=3),
        Read("a", 3),
        Read("b", 2),
        Cancel("a"),
        Read("a", None),
        Close("b"),
        stream("c", "once", max_new_tokens=3),
        Read("c", None),
        draft=NEAR,
    ),
)
