"""A clean environment: a copy of the checkout, a virtual environment, an empty user's cache."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
LIMIT = 900
"""Seconds for a line; the longest installs gradio."""


class Environment:
    """Runs a user's lines of shell. addresses: of what lasts, by the name of its command."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.checkout = folder / "checkout"
        self.addresses: dict[str, str | None] = {}
        git = shutil.which("git") or "git"
        copy = [git, "checkout-index", "--all", f"--prefix={self.checkout}/"]
        subprocess.run(copy, cwd=ROOT, check=True)
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        self._settings: dict[str, Any] = {
            "cwd": self.checkout,
            "text": True,
            "env": {
                **kept,
                # The README's first line makes it.
                "PATH": f"{self.checkout / '.venv' / 'bin'}{os.pathsep}{kept['PATH']}",
                "XDG_CACHE_HOME": str(folder / "cache"),
                # What pip has downloaded before is as good.
                "PIP_CACHE_DIR": kept.get("PIP_CACHE_DIR", str(Path.home() / ".cache" / "pip")),
                "PIP_QUIET": "1",
            },
        }

    def run(self, line: str) -> subprocess.CompletedProcess[str]:
        """Run a line to its end."""
        given = {"capture_output": True, "timeout": LIMIT, **self._settings}
        return subprocess.run(["/bin/bash", "-c", line], stdin=subprocess.DEVNULL, **given)

    @contextmanager
    def lasting(self, name: str, line: str) -> Iterator[None]:
        """Run a line that serves a page until it is ended, from when it prints an address."""
        log = self.folder / f"{name}.log"
        # A session of its own, so that all of the line can be ended.
        given = {"stdout": subprocess.PIPE, "start_new_session": True, **self._settings}
        with (
            log.open("w") as errors,
            subprocess.Popen(["/bin/bash", "-c", line], stderr=errors, **given) as process,
        ):
            assert process.stdout is not None
            try:
                printed = (text.strip() for text in process.stdout)
                self.addresses[name] = next((x for x in printed if x.startswith("http")), None)
                if self.addresses[name] is None:
                    raise RuntimeError(log.read_text()[-300:])
                yield
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGTERM)
