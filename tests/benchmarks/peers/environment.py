"""Where and with what a benchmark was run: what every record of the laboratory begins with."""

import shlex
import sys
from pathlib import Path
from typing import Any

from tests.benchmarks.peers.setup import Setup
from tests.benchmarks.record import Record


def describe_environment(setup: Setup, program: str) -> dict[str, Any]:
    """Command, options, models, code, versions, machine and date, for a report. See `Record`.

    program: how the command line begins.
    """
    options = {
        "device": setup.device,
        "precision": setup.precision,
        "properties": setup.all_properties(),
        "draft properties": setup.all_properties("draft"),
        "profile": setup.profile,
        "pairing": setup.pairing,
    }
    folders = {"main": Path(setup.main), "draft": Path(setup.draft)}
    return Record.begin(f"{program} {shlex.join(sys.argv[1:])}", options, folders).head()
