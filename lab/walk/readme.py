"""The README's own lines, in its order."""

import re
import shlex
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from lab.walk.environment import Environment

BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LASTS = re.compile(r"ov-specdec (serve|demo)\b")

ELSEWHERE = {
    r"export|transcribe|ov-specdec chat|models/[\w.-]+-int8|OpenVINO/": "wants models of the Hub",
    r"\[notebook\]|\[test\]|pytest|ruff|mkdocs": "is run by .ci/run",
    r"^(tokens = sequence|self\.scheduler)": "shows the engine",
}
"""What is not run here, and why."""

REQUESTS = """\
{"custom_id": "1", "method": "POST", "url": "/v1/completions", \
"body": {"prompt": "class Stack:", "max_tokens": 8}}
"""
"""A file that the README takes to be there."""


def lines_of(readme: Path) -> Iterator[str]:
    """Each command of the shell blocks, and each Python block as a command."""
    for language, block in BLOCK.findall(readme.read_text(encoding="utf-8")):
        if language == "sh":
            commands = block.replace("\\\n", "").splitlines()
            yield from (" ".join(command.split()) for command in commands if command.strip())
        elif why_elsewhere(block):
            yield block
        else:
            install = "pip install openai && " if "from openai" in block else ""
            yield f"{install}python -c {shlex.quote(block)}"


def why_elsewhere(line: str) -> str | None:
    """Why a line is not run here; None if it is."""
    return next((why for what, why in ELSEWHERE.items() if re.search(what, line)), None)


def follow(line: str, environment: Environment, servers: ExitStack) -> str:
    """Do what a line says; returns what went wrong. servers: an exit stack for what lasts."""
    if lasts := LASTS.search(line):
        servers.enter_context(environment.lasting(lasts[1], line))
        return ""
    done = environment.run(line)
    if done.returncode:
        return f"exit {done.returncode}: {(done.stderr or done.stdout)[-300:]}"
    is_silent = "--output" in line or (line.startswith("pip install") and "&&" not in line)
    return "" if done.stdout or is_silent else "it prints nothing"
