"""Options that several commands of the laboratory have."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

PATH = click.Path(path_type=Path)

MAIN_OPTION = click.option("--main", metavar="DIR", help="Main model. [the embedded one]")
DRAFT_OPTION = click.option("--draft", metavar="DIR", help="Draft model. [the embedded one]")


def pair_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command --main and --draft: folders or Hub names, None for the embedded pair's."""
    return MAIN_OPTION(DRAFT_OPTION(command))


class Several(click.ParamType):
    """Values separated by commas, each of one kind; an empty text holds none.

    among: the values that there are, if not all are allowed.
    """

    def __init__(self, kind: Callable[[str], Any], among: tuple[Any, ...] = ()) -> None:
        self.name = f"{kind.__name__},..."
        self._kind = kind
        self._among = among

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[Any, ...]:
        """The values of a text; a default is a tuple already."""
        if not isinstance(value, str):
            return tuple(value)
        try:
            values = tuple(self._kind(part.strip()) for part in value.split(",") if part.strip())
        except ValueError as error:
            self.fail(str(error), param, ctx)
        for each in values:
            if self._among and each not in self._among:
                self.fail(f"'{each}' is not one of {', '.join(map(str, self._among))}", param, ctx)
        return values


def several(
    name: str, kind: Callable[[str], Any], default: tuple[Any, ...], *, says: str, among: Any = ()
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """An option for values separated by commas, whose help shows the default as it is typed."""
    shown = ",".join(map(str, default)) or "none"
    return click.option(
        name, type=Several(kind, tuple(among)), default=default, help=f"{says} [{shown}]"
    )
