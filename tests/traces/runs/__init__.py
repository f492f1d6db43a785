"""The runs, in groups: each is a module with `RUNS`, and a file of records."""

from importlib import import_module

from tests.traces.describe import Run

GROUPS: dict[str, tuple[Run, ...]] = {
    name: import_module(f"tests.traces.runs.{name}").RUNS
    for name in (
        *("alone", "batches", "cancelled", "choosing", "drafters", "encoders"),
        *("ends", "failures", "forms", "kept", "lengths", "memory"),
    )
}
"""The runs of each group."""
