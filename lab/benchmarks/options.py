"""How every command of the laboratory sets a run up: models and prompts."""

from collections.abc import Callable, Collection
from functools import wraps
from pathlib import Path
from typing import Any

import click

from lab.benchmarks.models import Models
from lab.benchmarks.texts import Prompts
from ov_specdec.models.locate import embedded_folder, locate

PATH = click.Path(path_type=Path)
Command = Callable[..., Any]


def model_options(command: Command) -> Command:
    """Give a command `models`: --main and --draft, folders or Hub names."""

    @click.option("--main", metavar="DIR", help="Main model. [the embedded one]")
    @click.option("--draft", metavar="DIR", help="Draft model. [with the embedded main, its own]")
    @wraps(command)
    def with_models(main: str | None, draft: str | None, **others: Any) -> Any:
        if main is None:
            draft = draft or str(embedded_folder("draft"))
        models = Models(locate(main or embedded_folder("main")), locate(draft) if draft else None)
        return command(models=models, **others)

    return with_models


def prompt_options(default: str, number: int | None = None) -> Callable[[Command], Command]:
    """Give a command `prompts`: --prompts, and --number of them."""

    def decorate(command: Command) -> Command:
        @click.option(
            "--prompts",
            "name",
            default=default,
            show_default=True,
            help="code, quoting, tests, mixed, heldout or tasks; or a file: lines, or .jsonl with "
            "task and prompt.",
        )
        @click.option("--number", type=click.IntRange(1), default=number, help="Of the prompts.")
        @wraps(command)
        def with_prompts(name: str, number: int | None, **others: Any) -> Any:
            return command(prompts=Prompts.read(name, number), **others)

        return with_prompts

    return decorate


def several(
    name: str, kind: Callable[[str], Any], default: Collection[Any], *, says: str, among: Any = ()
) -> Callable[[Command], Command]:
    """An option for values separated by commas. among: those that there are; empty: any."""
    shown = ",".join(map(str, default)) or "none"

    def values(context: click.Context, option: click.Parameter, text: str) -> tuple[Any, ...]:
        parts = [part.strip() for part in text.split(",") if part.strip() and text != "none"]
        if among and (wrong := [part for part in parts if part not in among]):
            raise click.BadParameter(f"'{wrong[0]}' is not one of {', '.join(among)}")
        return tuple(map(kind, parts))

    return click.option(name, callback=values, default=shown, help=f"{says} [{shown}]")
