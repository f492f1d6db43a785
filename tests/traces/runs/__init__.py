"""The runs, in groups: each is a module with `RUNS` that says what it guards."""

from types import ModuleType

from tests.traces.runs import choosing, drafts, sharing

GROUPS: dict[str, ModuleType] = {"drafts": drafts, "sharing": sharing, "choosing": choosing}
"""By the name of their files of records."""
