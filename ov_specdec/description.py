"""What is said of an option in one place: its bounds, its help and its names elsewhere."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import cache, cached_property
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from ov_specdec.checks import (
    require_bool,
    require_choice,
    require_int,
    require_number,
    require_text,
    require_utf8,
)
from ov_specdec.errors import Option, OptionError

Endpoint = Literal["chat", "completions", "responses"]
ENDPOINTS: tuple[Endpoint, ...] = get_args(Endpoint)


@dataclass(frozen=True)
class About:
    """What an option's annotation says of it besides its type: `Annotated[int, About("...")]`.

    help: what it does, as the command line, requests and documents have it. more: what only the
    documents of the Python interface add. low, above, high: bounds of a number, and of each of
    several; low is also how many characters a text has at least. unit: of a number. unset: what
    stands for it where it is not given. metavar: how a value is typed; "": as its type has it.
    flag: its name on the command line, "": its own; None: it cannot be typed. field: the same in
    requests. endpoints: those that take it. check: refuses values that the type cannot tell, by the
    option's name. group: title of the options that this is the first of.
    """

    help: str
    more: str = ""
    low: float | None = None
    above: float | None = None
    high: float | None = None
    unit: str = ""
    unset: str = ""
    metavar: str = ""
    flag: str | None = ""
    field: str | None = ""
    endpoints: tuple[Endpoint, ...] = ENDPOINTS
    check: Callable[[str, Any], None] | None = None
    group: str = ""


@dataclass(frozen=True)
class Described:
    """An option with all that is said of it. kind: its type. default: its value if not given."""

    name: str
    kind: Any
    default: Any
    about: About

    @cached_property
    def kinds(self) -> tuple[Any, ...]:
        """The types that its type is a union of, without that of None."""
        return tuple(kind for kind in _alternatives(self.kind) if kind is not NoneType)

    @cached_property
    def choices(self) -> tuple[Any, ...]:
        """The words that it may be, of those types."""
        literals = [kind for kind in self.kinds if get_origin(kind) is Literal]
        return tuple(choice for literal in literals for choice in get_args(literal))

    @cached_property
    def item(self) -> Any:
        """The type of each where it may be several; else None."""
        found = [get_args(kind)[0] for kind in self.kinds if get_origin(kind) is Sequence]
        return found[0] if found else None

    @property
    def field(self) -> str | None:
        """Its name in requests; None where it is no field of them."""
        return None if self.about.field is None else self.about.field or self.name

    @property
    def flag(self) -> str | None:
        """Its name on the command line; None where it has none."""
        if self.about.flag is None:
            return None
        return "--" + (self.about.flag or self.name).replace("_", "-")

    def check(self, value: object) -> None:
        """Refuse a value of another type, or out of bounds."""
        if value is None and NoneType in _alternatives(self.kind):
            return
        if self.about.check is not None:
            self.about.check(self.name, value)
        elif self.item in (int, float, str):
            for each in as_tuple(value):
                self._check_one(self.item, each)
        elif self.choices and value not in self.choices and len(self.kinds) == 1:
            require_choice(self.name, value, self.choices)
        elif value not in self.choices:
            self._check_one(self.kinds[0], value)

    def _check_one(self, kind: Any, value: object) -> None:
        about = self.about
        if kind is bool:
            require_bool(self.name, value)
        elif kind is int:
            require_int(self.name, value, low=_whole(about.low), high=_whole(about.high))
        elif kind is float:
            bounds = {"low": about.low, "above": about.above, "high": about.high}
            require_number(self.name, value, **bounds)
        elif kind is str:
            require_text(self.name, value)
            require_utf8(Option(self.name), str(value))
            if about.low is not None and len(str(value)) < about.low:
                raise OptionError(Option(self.name, value), " must be texts, none empty")


def describe(options: Any) -> dict[str, Described]:
    """The options that a dataclass describes, by name: those whose type is annotated."""
    return _describe(options)


@cache
def _describe(options: Any) -> dict[str, Described]:
    found = {}
    for field in fields(options):
        if get_origin(field.type) is Annotated:
            kind, about = get_args(field.type)
            found[field.name] = Described(field.name, kind, field.default, about)
    return found


def by_group(options: Any) -> dict[str, list[str]]:
    """The names of all options by what they are about."""
    groups: dict[str, list[str]] = {}
    for name, each in describe(options).items():
        if each.about.group:
            groups[each.about.group] = group = []
        group.append(name)
    return groups


def check_described(options: Any) -> None:
    """Refuse values that their descriptions do not allow."""
    for name, described in describe(type(options)).items():
        described.check(getattr(options, name))


def as_tuple(value: Any) -> tuple[Any, ...]:
    """One value or several, as a tuple."""
    several = hasattr(value, "__iter__") and not isinstance(value, str)
    return tuple(value) if several else (value,)


def _alternatives(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def _whole(bound: float | None) -> int | None:
    return None if bound is None else int(bound)
