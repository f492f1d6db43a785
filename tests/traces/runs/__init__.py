"""The runs, in groups: each is a module with `RUNS`, and a file of records."""

from tests.traces.runs import (
    alone,
    batches,
    cancelled,
    choosing,
    drafters,
    encoders,
    ends,
    failures,
    forms,
    kept,
    lengths,
    memory,
)

GROUPS = {
    module.__name__.rpartition(".")[2]: module.RUNS
    for module in (
        *(alone, batches, cancelled, choosing, drafters, encoders),
        *(ends, failures, forms, kept, lengths, memory),
    )
}
"""The runs of each group."""
