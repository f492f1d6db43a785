"""What pages take from the code: the blocks between `<!-- made: NAME -->` and `<!-- end -->`.

They are Markdown, so that they show wherever the repository is read. `python -m lab.docs` writes
them anew.
"""

import re
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from click.testing import CliRunner

from lab.benchmarks.tables import markdown
from lab.docs.reference import reference
from ov_specdec.api.body import GenerationBody
from ov_specdec.cli.app import COMMANDS, app
from ov_specdec.cli.conversation import describe_commands
from ov_specdec.openai.requests import ChatBody, CompletionBody, ResponsesBody
from ov_specdec.server.metrics import Metrics, RequestMetrics

BLOCK = re.compile(r"(<!-- made: (\w+) -->\n).*?(<!-- end -->)", re.S)

BODIES: dict[str, type[GenerationBody]]
BODIES = {"chat": ChatBody, "completions": CompletionBody, "responses": ResponsesBody}

WIDTH: Any = {"terminal_width": 100, "color": False}


def commands() -> str:
    """The help of every command, with all options."""
    parts = list[str]()
    for name in COMMANDS:
        asked = CliRunner().invoke(app, [name, "--help-all"], prog_name="ov-specdec", **WIDTH)
        parts.append(f"### ov-specdec {name}\n\n```\n{asked.output}```\n\n")
        if name == "chat":
            parts.append(f"```\n{describe_commands()}\n```\n\n")
    return "".join(parts)


def fields() -> str:
    """The fields of requests by endpoint."""
    known = {name: field for body in BODIES.values() for name, field in fields_of(body).items()}
    rows = [
        [
            f"`{name}`",
            *("x" if name in fields_of(body) else "" for body in BODIES.values()),
            str(field.description),
        ]
        for name, field in sorted(known.items())
    ]
    return f"{markdown([['field', *BODIES, ''], *rows])}\n\n"


def fields_of(body: type[GenerationBody]) -> Mapping[str, Any]:
    """Fields by the names that they have in JSON."""
    return {field.alias or name: field for name, field in body.model_fields.items()}


def metrics() -> str:
    """The metrics in the server's own words."""
    scheduler = SimpleNamespace(running=())
    loop: Any = SimpleNamespace(engine=SimpleNamespace(scheduler=scheduler), num_waiting=(0, 0))
    main: Any = SimpleNamespace(num_free=None, capacity=None)
    engine, requests = Metrics("model"), RequestMetrics("model")
    engine.watch(loop, main, 1)
    rows = [
        [f"`{each.name}{'_total' * (each.type == 'counter')}`", each.type, each.documentation]
        for each in (*requests.registry.collect(), *engine.registry.collect())
    ]
    return f"{markdown([['metric', 'type', ''], *rows])}\n\n"


MADE: Mapping[str, Callable[[], str]] = {
    "commands": commands,
    "fields": fields,
    "metrics": metrics,
    "reference": reference,
}


def made(page: str) -> str:
    """A page with its blocks as the code has them now. `KeyError` for an unknown name."""
    return BLOCK.sub(lambda found: f"{found[1]}\n{MADE[found[2]]()}{found[3]}", page)
