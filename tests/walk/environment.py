"""A clean environment: a copy of the checkout, a virtual environment, an empty user's cache."""

import os
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
LIMIT = 900
"""Seconds for a line; the longest installs gradio."""


class Environment:
    """Runs a user's lines of shell. addresses: of what lasts, by the name of its command."""

    def __init__(self, folder):
        self.folder = folder
        self.checkout = folder / "checkout"
        self.addresses = {}
        git, copy = shutil.which("git"), f"--prefix={self.checkout}/"
        subprocess.run([git, "checkout-index", "--all", copy], cwd=ROOT, check=True)
        subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        self._settings = {
            "cwd": self.checkout,
            "text": True,
            "env": {
                **kept,
                "PATH": f"{folder / 'venv' / 'bin'}{os.pathsep}{kept['PATH']}",
                "XDG_CACHE_HOME": str(folder / "cache"),
                # What pip has downloaded before is as good.
                "PIP_CACHE_DIR": kept.get("PIP_CACHE_DIR", str(Path.home() / ".cache" / "pip")),
                "PIP_QUIET": "1",
            },
        }

    def run(self, line):
        """Run a line to its end."""
        given = {"stdin": subprocess.DEVNULL, "capture_output": True, "timeout": LIMIT}
        return subprocess.run(["/bin/bash", "-c", line], **given, **self._settings)

    @contextmanager
    def lasting(self, name, line):
        """Run a line that serves a page until it is ended, from when it prints an address."""
        log = self.folder / f"{name}.log"
        # A session of its own, so that all of the line can be ended.
        given = {"stdout": subprocess.PIPE, "start_new_session": True, **self._settings}
        with (
            log.open("w") as errors,
            subprocess.Popen(["/bin/bash", "-c", line], stderr=errors, **given) as process,
        ):
            try:
                printed = (text.strip() for text in process.stdout)
                self.addresses[name] = next((x for x in printed if x.startswith("http")), None)
                if self.addresses[name] is None:
                    raise RuntimeError(log.read_text()[-300:])
                yield
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGTERM)
