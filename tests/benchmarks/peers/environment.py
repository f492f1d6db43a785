"""Where and with what a benchmark was run: machine, versions, command, settings."""

import os
import platform
import shlex
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ov_specdec.loading.devices import list_devices, usable_cores
from tests.benchmarks.peers.setup import Setup

PACKAGES = (
    "ov-specdec",
    "openvino",
    "openvino-genai",
    "openvino-tokenizers",
    "transformers",
    "torch",
    "numpy",
)


def describe_environment(setup: Setup, program: str) -> dict[str, Any]:
    """Machine, versions, command and settings, as names and values for a report.

    program: how the command line begins.
    """
    devices = {device.name: device.full_name for device in list_devices()}
    return {
        "machine": {
            "cpu": devices.get("CPU", platform.processor()),
            "cores": usable_cores(),
            "memory(GiB)": _memory_gib(),
            "system": platform.platform(),
            "devices": devices,
        },
        "versions": {
            "python": platform.python_version(),
            **{package: _version(package) for package in PACKAGES},
        },
        "command": f"{program} {shlex.join(sys.argv[1:])}",
        "models": {
            "main": Path(setup.main).name,
            "draft": Path(setup.draft).name,
        },
        "device": setup.device,
        "precision": setup.precision,
        "properties": setup.all_properties(),
        "draft properties": setup.all_properties("draft"),
        "profile": setup.profile,
        "pairing": setup.pairing,
    }


def _memory_gib() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (AttributeError, ValueError, OSError):  # not on this system
        return None


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
