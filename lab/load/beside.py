"""guidellm's clients, beside those of `lab.load.clients` that hang up and that are hostile.

    python -m lab.load.beside [--seconds 300]

64 clients, 43 of them guidellm's and 21 that hang up, and 11 others that are hostile or compare
what they get. Prints figures as JSON; exit code 1 if anything was lost, mixed up or cut, or if
`/health` has failed meanwhile. Needs the extra `[load]`.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lab.load.clients import load, num_running
from tests.support.server import serving_process

MODELS = Path(__file__).parents[2] / "models"
TOKENS = 32
STREAMS, OTHERS = 43, 32
BUSY = 8
"""Requests at once, more than guidellm's first ones, which see whether there is a server."""

HOSTILE = ("bad", "too-long", "long-stop", "too-many")
WEIGHTS = {"hang-up": 42, "stream": 3, "whole": 3, **dict.fromkeys(HOSTILE, 4)}
SERVER = (
    *("--precision", "exact", "--log-level", "error", "--request-timeout", "300"),
    *("--kv-cache-size", "0.3"),  # cached prompts fill it, and what grows then is a leak
)


def command(url: str, folder: Path, seconds: float) -> list[str]:
    """That runs guidellm; its report comes into the folder."""
    given = {
        "backend": f"kind=openai_http,target={url},request_format=/v1/completions",
        "tokenizer": f"kind=huggingface_auto,model={MODELS / 'main'}",
        "data": f"kind=synthetic_text,prompt_tokens=64,output_tokens={TOKENS}",
        "profile": f"kind=concurrent,streams={STREAMS}",
        "constraint": f"kind=max_duration,seconds={seconds}",
        "output": f"kind=json,path={folder / 'report.json'}",
    }
    options = [part for name, value in given.items() for part in (f"--{name}", value)]
    return ["guidellm", "run", *options, "--disable-console"]


def figures_of(report: Mapping[str, Any]) -> dict[str, Any]:
    """What guidellm tells: how requests have ended, and tokens of the answers that are whole."""
    [benchmark] = report["benchmarks"]
    requests = benchmark["requests"]
    lengths = Counter(each["output_tokens"] for each in requests["successful"])
    return {
        "whole": len(requests["successful"]),
        "failed": len(requests["errored"]),
        "cut by the end of the run": len(requests["incomplete"]),
        "answers by tokens": dict(lengths),
    }


def run(seconds: float) -> dict[str, Any]:
    """Start a server and all clients, for so many seconds; the figures."""
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    with (
        tempfile.TemporaryDirectory() as folder,
        serving_process(*SERVER) as (process, http),
        subprocess.Popen(
            command(str(http.base_url), Path(folder), seconds),
            env=environment,
            stdout=subprocess.DEVNULL,
        ) as guidellm,
    ):
        while num_running(http.get("/metrics").text) < BUSY:  # it takes a while to begin
            assert guidellm.poll() is None
            time.sleep(0.2)
        figures = asyncio.run(load(str(http.base_url), OTHERS, seconds, process.pid, WEIGHTS))
        assert guidellm.wait(120) == 0
        report = json.loads((Path(folder) / "report.json").read_text())
    return {"guidellm": figures_of(report), "others": figures}


def is_well(figures: Mapping[str, Any]) -> bool:
    """Whether nothing was lost, mixed up or cut, and `/health` has never failed."""
    guidellm, others = figures["guidellm"], figures["others"]
    return (
        not guidellm["failed"]
        and guidellm["answers by tokens"].keys() == {TOKENS}
        and not others["wrong"]
        and not others["left running"]
        and others["health by status"].keys() == {200}
    )


def main() -> None:
    """Load a server of its own; the exit code is 1 if an answer was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=300)
    figures = run(parser.parse_args().seconds)
    print(json.dumps(figures, indent=2))  # noqa: T201
    sys.exit(not is_well(figures))


if __name__ == "__main__":
    main()
